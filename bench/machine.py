"""What a reader must know of the machine to read the figures."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import sysconfig
from pathlib import Path

import millstream
from bench.peers.kafka import KafkaInstall

KIB_PER_GIB = 1 << 20
ROOT = Path(__file__).parent.parent


def describe(
    data_dir: Path, install: KafkaInstall | None, also_on: Path | None = None
) -> dict[str, str]:
    """Return name and value of every fact, in the order to print them."""
    kafka = f"{install.version} on Java {install.java_version}" if install else "not run"
    return {
        "processor": f"{_processor()}, {os.cpu_count()} cores, not pinned",
        "memory": f"{_memory_kib() / KIB_PER_GIB:.1f} GiB",
        "system": f"{platform.system()} {platform.release()}",
        "file system": f"{_file_system(data_dir)} ({data_dir})",
        "load before the run": " ".join(f"{value:.2f}" for value in os.getloadavg()),
        **interpreter(),
        **({} if also_on is None else _also(also_on)),
        "Millstream": f"{millstream.__version__} at {_commit()}",
        "Apache Kafka": kafka,
    }


def interpreter() -> dict[str, str]:
    """Return version and build of the interpreter. With a profile (PGO) and link-time optimization
    (LTO) the same program takes a tenth less CPU, so a figure says little without them.
    """
    arguments = str(sysconfig.get_config_var("CONFIG_ARGS") or "not known")
    return {
        "Python": f"{platform.python_version()}, {build_of(arguments, _vendor())}",
        # Where the interpreter lies says nothing of its speed.
        "CONFIG_ARGS": arguments.replace(sys.base_prefix, "PREFIX"),
    }


def _also(python: Path) -> dict[str, str]:
    program = "import json; from bench.machine import interpreter; print(json.dumps(interpreter()))"
    answer = subprocess.run(
        [python, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    facts: dict[str, str] = json.loads(answer.stdout)
    return {f"also, {name}": value for name, value in facts.items()}


def build_of(arguments: str, vendor: str) -> str:
    """Say in words how an interpreter was built, from the arguments of its ``configure``. Debian
    does not pass them: it makes ``profile-opt`` with ``-flto``.
    """
    if vendor == "Debian":
        return "Debian's build: PGO and LTO, not told by CONFIG_ARGS"
    options = {"--enable-optimizations": "PGO", "--with-lto": "LTO"}
    found = [name for option, name in options.items() if option in arguments]
    jit = ", JIT built in" if "--enable-experimental-jit" in arguments else ""
    return (" and ".join(found) or "neither PGO nor LTO") + jit


def _vendor() -> str:
    """Return ``Debian`` for the interpreter that Debian and Ubuntu install, else nothing."""
    of_system = sys.base_prefix == "/usr" and Path("/etc/debian_version").exists()
    return "Debian" if of_system else ""


def is_busy() -> bool:
    """Tell whether other work was on the machine during the last minute."""
    return os.getloadavg()[0] > 0.5


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _memory_kib() -> int:
    return int(Path("/proc/meminfo").read_text(encoding="utf-8").split()[1])


def _file_system(directory: Path) -> str:
    """Return type and options of the mount that holds a directory, which need not exist yet."""
    found, best = "unknown", ""
    for line in Path("/proc/mounts").read_text(encoding="utf-8").splitlines():
        _, mount, kind, mount_options = line.split()[:4]
        if directory.is_relative_to(mount) and len(mount) >= len(best):
            found, best = f"{kind} {mount_options}", mount
    return found


def _commit() -> str:
    answer = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return answer.stdout.strip() or "no commit"
