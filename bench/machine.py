"""What a reader must know of the machine to read the figures."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path

import millstream
from bench.peers.kafka import KafkaInstall

KIB_PER_GIB = 1 << 20


def describe(data_dir: Path, install: KafkaInstall | None) -> dict[str, str]:
    """Return name and value of every fact, in the order to print them."""
    kafka = f"{install.version} on Java {install.java_version}" if install else "not run"
    return {
        "processor": f"{_processor()}, {os.cpu_count()} cores, not pinned",
        "memory": f"{_memory_kib() / KIB_PER_GIB:.1f} GiB",
        "system": f"{platform.system()} {platform.release()}",
        "file system": f"{_file_system(data_dir)} ({data_dir})",
        "load before the run": " ".join(f"{value:.2f}" for value in os.getloadavg()),
        "Python": platform.python_version(),
        "Millstream": f"{millstream.__version__} at {_commit()}",
        "Apache Kafka": kafka,
    }


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
    root = Path(__file__).parent.parent
    answer = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    return answer.stdout.strip() or "no commit"
