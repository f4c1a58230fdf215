"""How many bytes have to be on a disk before a broker can run."""

from __future__ import annotations

import os
import sysconfig
from importlib import metadata
from pathlib import Path

from bench.peers.kafka import KafkaInstall


def kafka_bytes(install: KafkaInstall) -> tuple[int, int]:
    """Return the bytes of Kafka's jars and of the Java runtime."""
    runtime = install.java.resolve().parent.parent
    return _tree_bytes(install.libs), _tree_bytes(runtime)


def millstream_bytes() -> tuple[int, int]:
    """Return the bytes of Millstream with what it requires (no extras), and of Python's library."""
    packages = _required("millstream", set())
    source = Path(__file__).parent.parent / "src"
    total = sum(_distribution_bytes(name) for name in packages)
    # An editable installation records no files of its own: its packages are counted in place.
    if _distribution_bytes("millstream") < _tree_bytes(source):
        total += _tree_bytes(source)
    return total, _tree_bytes(Path(sysconfig.get_paths()["stdlib"]), without="site-packages")


def _required(name: str, seen: set[str]) -> set[str]:
    """Return the names of a distribution and of all it requires without extras."""
    key = name.lower().replace("_", "-")
    if key in seen:
        return seen
    try:
        requirements = metadata.requires(name) or []
    except metadata.PackageNotFoundError:
        return seen
    seen.add(key)
    for requirement in requirements:
        text, _, marker = requirement.partition(";")
        if "extra" not in marker:
            _required(_name_of(text), seen)
    return seen


def _name_of(requirement: str) -> str:
    end = next(
        (at for at, letter in enumerate(requirement) if not (letter.isalnum() or letter in "-_.")),
        len(requirement),
    )
    return requirement[:end]


def _distribution_bytes(name: str) -> int:
    files = metadata.files(name) or []
    paths = (Path(str(file.locate())) for file in files)
    return sum(path.stat().st_size for path in paths if path.is_file())


def _tree_bytes(directory: Path, *, without: str = "") -> int:
    total = 0
    for root, directories, files in os.walk(directory):
        directories[:] = [name for name in directories if name not in {without, "__pycache__"}]
        paths = (os.path.join(root, name) for name in files)
        total += sum(os.lstat(path).st_size for path in paths)
    return total
