"""An error without room names what was written, and how much is free."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from millstream.cli.failures import sentence
from millstream.cli.full_disks import free_text, naming


def full(path: str | None = None) -> OSError:
    return OSError(errno.ENOSPC, "No space left on device", *([] if path is None else [path]))


def test_a_file_is_named_with_what_is_free(tmp_path: Path) -> None:
    file = tmp_path / "not" / "made"
    with pytest.raises(OSError, match="No space left") as raised, naming(file):
        raise full()
    said = sentence(raised.value)
    assert said.startswith(f"{file}: No space left on device (")
    assert said.endswith(" free)")
    with pytest.raises(OSError, match="No space left") as raised, naming(tmp_path):
        raise full(str(file))
    assert raised.value.filename == str(file)


def test_other_errors_do_not_speak_of_room(tmp_path: Path) -> None:
    error = OSError(errno.EACCES, "Permission denied", str(tmp_path))
    assert sentence(error) == f"{tmp_path}: Permission denied"
    assert sentence(full()) == "No space left on device"
    # Where the system does not tell which file that is, none must be looked for.
    assert sentence(full("standard output")) == "standard output: No space left on device"
    assert free_text(tmp_path).endswith(" free)")


_PRINTS = """
import sys
from millstream.cli import app
def command():
    {write}
app.build = lambda words: (made := app._without_commands(), made.command("sql")(command))[0]
sys.exit(app.run(["sql"]))
"""


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    "write",
    ["print('x')", "print('x' * 100_000)", "sys.stdout.buffer.write(b'x' * 100_000)"],
)
def test_standard_output_is_named(write: str, unbuffered: str) -> None:
    with open("/dev/full", "w") as out:
        done = subprocess.run(
            [sys.executable, "-c", _PRINTS.format(write=write)],
            stdout=out,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
            env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
        )
    said = "millstream: standard output (/dev/full): No space left on device\n"
    assert (done.stderr, done.returncode) == (said, 1)


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_all_is_written_before_the_disk_is_full(tmp_path: Path, unbuffered: str) -> None:
    """A limit of the size of files stands for the disk."""
    write = "sys.stdout.buffer.write(b'x' * 100_000)"
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (70_000, 70_000))\n"
    with (tmp_path / "out").open("w") as out:
        done = subprocess.run(
            [sys.executable, "-c", limit + _PRINTS.format(write=write)],
            stdout=out,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
            env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
        )
    assert done.stderr.startswith(f"millstream: standard output ({out.name}): File too large (")
    assert done.returncode == 1
    assert (tmp_path / "out").stat().st_size == 70_000
