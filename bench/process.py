"""What the operating system says about a process: CPU seconds, resident memory, open limits."""

from __future__ import annotations

import os
import resource
from pathlib import Path

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def cpu_seconds(pid: int) -> float:
    """User and system time of a process and its threads so far, to 1/100 s (/proc/PID/stat)."""
    stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    # The command name may hold spaces; fields are counted after its closing parenthesis, where
    # the state is field 3, utime field 14 and stime field 15 of proc(5).
    fields = stat[stat.rindex(")") + 2 :].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND


def resident_bytes(pid: int) -> int:
    """Return the resident set of a process in bytes (/proc/PID/statm)."""
    return int(Path(f"/proc/{pid}/statm").read_text(encoding="utf-8").split()[1]) * PAGE_BYTES


def bytes_read(pid: int) -> int:
    """Return the bytes that a process has read so far, from memory or a disk (/proc/PID/io)."""
    lines = Path(f"/proc/{pid}/io").read_text(encoding="utf-8").splitlines()
    return int(dict(line.split(": ") for line in lines)["rchar"])


def raise_open_file_limit() -> int:
    """Lift this process's soft limit of open files to the hard one; children inherit it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard
