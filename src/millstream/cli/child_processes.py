"""The processes that a command starts beside itself, and how they end."""

from __future__ import annotations

import subprocess


def end_process(process: subprocess.Popen[str], timeout_s: float) -> int:
    """Have a process stop; kill it if it does not within the time. Return its code."""
    process.terminate()
    return await_process(process, timeout_s)


def await_process(
    process: subprocess.Popen[str] | subprocess.Popen[bytes], timeout_s: float
) -> int:
    """Wait for a process that was asked to end; kill it if it does not within the time. Return its
    code.
    """
    try:
        return process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()
