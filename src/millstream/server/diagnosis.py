"""What a broker does and waits for, written into its log at ``kill -USR1``.

A thread of its own takes the stacks of all others, so that a loop that is stuck is seen where it
is; the loop is then asked what its tasks, lanes, partitions and coordinators wait for. A loop that
does not answer within ``LOOP_ANSWERS_S`` is said to be stuck.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import traceback
from asyncio import AbstractEventLoop
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from millstream.runtime.offload import Offload, ThreadOffload
from millstream.runtime.replicas.partition import Partition
from millstream.runtime.services import Services

if TYPE_CHECKING:
    from millstream.net.listener import Listener

log = logging.getLogger(__name__)

LOOP_ANSWERS_S: Final = 2.0
MAX_NAMED: Final = 20
"""Partitions, connections and the like that are named of each kind; the others are counted."""


def diagnose(loop: AbstractEventLoop, waits: Callable[[], Iterable[str]]) -> None:
    """Write into the log what every other thread does, and what ``waits``, which is called on the
    loop, says. Called on any thread but that of the loop.
    """
    for stack in _stacks():
        log.warning("%s", stack)
    answered = threading.Event()
    lines: list[str] = []

    def ask() -> None:
        try:
            lines.extend(_of_tasks(loop))
            lines.extend(waits())
        except Exception:
            log.exception("cannot describe what the broker waits for")
        finally:
            answered.set()

    with suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(ask)
    if not answered.wait(LOOP_ANSWERS_S):
        log.warning("the event loop has not answered for %g s: it is stuck", LOOP_ANSWERS_S)
        for stack in _stacks():
            log.warning("%s", stack)
        return
    for line in lines:
        log.warning("%s", line)
    log.warning("that is all")


def _stacks() -> Iterator[str]:
    """Yield the stack of each thread."""
    frames = sys._current_frames()
    del frames[threading.get_ident()]
    for thread in threading.enumerate():
        frame = frames.get(thread.ident or 0)
        if frame is not None:
            stack = "".join(traceback.format_stack(frame)).rstrip()
            yield f"thread {thread.name} is at\n{stack}"


def _of_tasks(loop: AbstractEventLoop) -> Iterator[str]:
    for task in asyncio.all_tasks(loop):
        yield f"task {task.get_name()} waits in {task.get_coro()}"


def waits_of(
    services: Services | None, offload: Offload, listeners: Iterable[Listener]
) -> Iterator[str]:
    """Yield what a broker waits for; ``services`` is None while it starts."""
    if isinstance(offload, ThreadOffload):
        for lane, count, task in offload.work():
            yield f"lane {lane!r}: {task or 'idle'}, {count} more wait"
    for listener in listeners:
        yield from _limited(f"listener {listener.name}", listener.waiting())
    if services is None:
        yield "the broker has not started to serve"
        return
    yield from _of_cluster(services)
    yield from _limited("partition", _of_partitions(services))
    for kind in services.coordinators.made():
        yield from _limited("coordinator", kind.describe_shards())


def _limited(kind: str, lines: Iterable[str]) -> Iterator[str]:
    left = 0
    for count, line in enumerate(lines):
        if count < MAX_NAMED:
            yield f"{kind} {line}"
        else:
            left += 1
    if left:
        yield f"{kind}: and {left} more"


def _of_cluster(services: Services) -> Iterator[str]:
    metadata, member = services.metadata, services.cluster
    controller = "this broker" if services.controller.is_active else f"{metadata.controller_id}"
    yield f"the controller is {controller}; brokers alive: {sorted(metadata.brokers)}"
    if member is not None and not member.is_registered:
        yield "this broker is not registered"
    if member is not None and not member.is_told:
        yield "this broker waits for a controller"
    replicas = services.partitions.replicas
    if replicas is not None:
        now_ms = services.clock.monotonic_ms()
        for leader, since_ms in replicas.unanswered_since_ms().items():
            yield f"a fetch of broker {leader} is not answered for {now_ms - since_ms:.0f} ms"


def _of_partitions(services: Services) -> Iterator[str]:
    for partition in services.partitions:
        waits = _waits_of(partition)
        if waits:
            yield f"{partition.topic_partition}: {', '.join(waits)}"


def _waits_of(partition: Partition) -> list[str]:
    leading, waiting = partition.leading, partition.waiting
    counts = {
        "writes wait for their commit": len(partition.commit_waiters),
        "writes wait for this broker's disk": 0 if leading is None else leading.local_waits,
        "batches wait for their append": 0 if waiting is None else len(waiting.admission.entries),
        "fetches of consumers wait for records": len(partition.fetch_waiters),
        "fetches of followers wait for records": len(partition.replica_waiters),
    }
    found = [f"{count} {what}" for what, count in counts.items() if count]
    if partition.flushes.is_held:
        found.append("flushes are held")
    if leading is not None and leading.is_under_min_isr:
        found.append("fewer replicas are in sync than min.insync.replicas")
    return found
