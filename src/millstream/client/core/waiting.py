"""Ways to wait on a :class:`ClientLoop`: for a time, with a time-out, and for a signal."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar

from millstream.client.core.loop import ClientLoop
from millstream.client.errors import ClientError, TimedOutError, is_retriable
from millstream.model.deferred import Deferred
from millstream.model.errors import KafkaError

T = TypeVar("T")

_JITTER: Final = 0.2


def sleep(loop: ClientLoop, delay_ms: float) -> Deferred[None]:
    """Return a cell that is filled after ``delay_ms``."""
    cell: Deferred[None] = Deferred()
    loop.call_at(loop.now_ms() + delay_ms, lambda: cell.complete(None))
    return cell


def within(
    loop: ClientLoop,
    waited: Deferred[T],
    timeout_ms: float,
    about: str,
    failures: Sequence[Exception] = (),
    *,
    where: Callable[[], str] | None = None,
) -> Deferred[T]:
    """Return a cell that follows ``waited``, or fails with TimedOutError after ``timeout_ms``.

    The operation itself continues; only the wait ends. ``about`` completes "timed out waiting for",
    and ``where`` says which brokers that is about. If attempts have failed by then, the last of
    ``failures`` is raised instead.
    """
    if waited.done:
        return waited
    cell: Deferred[T] = Deferred()

    def expire() -> None:
        if not cell.done:
            place = "" if where is None else f" ({where()})"
            late = TimedOutError(f"timed out waiting for {about} after {timeout_ms:.0f} ms{place}")
            cell.fail(failures[-1] if failures else late)

    timer = loop.call_at(loop.now_ms() + timeout_ms, expire)

    def settle(source: Deferred[T]) -> None:
        if cell.done:
            return
        timer.cancel()
        follow(source, cell)

    waited.on_done(settle)
    return cell


def follow(source: Deferred[T], cell: Deferred[T]) -> None:
    """Fill ``cell`` as ``source`` was filled."""
    try:
        value = source.result()
    except BaseException as error:
        cell.fail(error)
    else:
        cell.complete(value)


class Signal:
    """Wakes all waiters, each time it is raised."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: Deferred[None] = Deferred()

    def wait(self) -> Deferred[None]:
        """Return a Deferred that completes when the signal is raised next."""
        return self._waiting

    def notify(self) -> None:
        """Wake all waiters."""
        waiting, self._waiting = self._waiting, Deferred()
        waiting.complete(None)


def backoff_ms(loop: ClientLoop, attempts: int, first_ms: float, most_ms: float) -> float:
    """Return how long to wait after ``attempts`` failures: doubling, with a fifth of jitter.

    Source: KIP-580, Kafka's ``ExponentialBackoff``.
    """
    if first_ms <= 0:
        return 0.0
    base = min(first_ms * 2.0 ** min(attempts, 62), max(first_ms, most_ms))
    return min(base * (1 - _JITTER + 2 * _JITTER * loop.random()), max(first_ms, most_ms))


async def retrying(
    loop: ClientLoop,
    operation: Callable[[], Awaitable[T]],
    *,
    timeout_ms: float,
    first_ms: float,
    most_ms: float,
    failures: list[Exception],
) -> T:
    """Run ``operation`` until it succeeds, fails for good, or ``timeout_ms`` have passed.

    Raises the last error. :func:`is_retriable` decides which errors are retried. The last attempt
    is not cut short: a caller that must not wait longer uses :func:`within`, and passes it the
    errors of attempts, which are put into ``failures``.
    """
    deadline = loop.now_ms() + timeout_ms
    attempts = 0
    while True:
        try:
            return await operation()
        except (ClientError, KafkaError) as error:
            failures.append(error)
            pause = backoff_ms(loop, attempts, first_ms, most_ms)
            if not is_retriable(error) or loop.now_ms() + pause >= deadline:
                raise
        attempts += 1
        await sleep(loop, pause)


def ignore(outcome: Deferred[Any]) -> None:
    """Consume the result of a background operation; errors of the client's own kind are dropped."""

    def settle(source: Deferred[Any]) -> None:
        with contextlib.suppress(ClientError, KafkaError):
            source.result()

    outcome.on_done(settle)
