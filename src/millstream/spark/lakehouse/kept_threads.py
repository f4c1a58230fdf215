"""Threads that stay, and are used again, when what ran on them is over.

The C library gives each thread an arena of memory to allocate from, and an arena keeps what its
largest task has needed. With new threads for every batch one arena after the other would grow to
that size, up to eight for each core.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, TypeVar

from millstream.platform import after_fork_in_child

T = TypeVar("T")

_UNBOUNDED: Final = 10_000
"""A thread is made where none is idle, so that none that waits for others holds them up."""

_pools: list[ThreadPoolExecutor] = []


def on_kept_thread(run: Callable[[], T]) -> Future[T]:
    """Run a function on an idle thread, or on a new one."""
    if not _pools:
        _pools.append(ThreadPoolExecutor(_UNBOUNDED, "millstream-load"))
    return _pools[0].submit(run)


after_fork_in_child(_pools.clear)  # a child has none of its parent's threads
