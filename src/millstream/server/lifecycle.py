"""The broker process: start, report the listeners, serve until a signal, stop cleanly."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import sys
from collections.abc import Callable

from millstream.config.broker import BrokerConfig, without_effect
from millstream.records.produce_kernel import why_not
from millstream.records.validation import WALKED_RECORDS
from millstream.runtime.logs.log_loading import LoadingStoppedError
from millstream.server.broker import Broker

log = logging.getLogger(__name__)

Announce = Callable[[str, int, list[str]], None]
"""Called once with the host, the port and the log directories, when the broker is ready."""


def run(config: BrokerConfig, announce: Announce) -> int:
    """Serve until SIGTERM, SIGINT or SIGHUP; return the exit code: 0, or 1 when every disk has
    failed. SIGHUP stays ignored if it was, as under `nohup`.

    Raises ConfigError, StorageError or OSError when the broker cannot start.
    """
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s"
    )
    ignored = without_effect(config.overrides)
    if ignored:
        log.warning("settings without effect here: %s", ", ".join(ignored))
    _warn_without_a_kernel()
    loop = _new_event_loop()
    stopped = False
    broker: Broker | None = None

    def stop(*_: object) -> None:
        nonlocal stopped
        stopped = True
        if broker is not None:
            broker.interrupt()
        if not loop.is_closed():  # a second signal during the stop
            loop.call_soon_threadsafe(loop.stop)

    # Not by the loop's handlers: they would lose a signal that arrives while the loop does not run,
    # as during start-up.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, stop)
    try:
        broker = Broker(config, loop, on_fatal=stop)
        if stopped:
            broker.interrupt()
        try:
            broker.start()
            broker.until_known().on_done(
                lambda _: announce(*broker.bound, list(config.log_directories))
            )
            _settle_memory()
            while not stopped:
                loop.run_forever()
        except LoadingStoppedError:
            log.info("the start was aborted")
        finally:
            broker.stop()
    finally:
        loop.close()
    return 1 if broker.failed else 0


def _warn_without_a_kernel() -> None:
    """Log what `record.validation=relaxed` does not check on this machine."""
    lack = why_not()
    if lack:
        log.warning(
            "record.validation=relaxed checks the records of batches of up to %d records only: %s",
            WALKED_RECORDS,
            lack,
        )


def _new_event_loop() -> asyncio.AbstractEventLoop:
    """Return uvloop's loop if it is installed, which takes a third less CPU per request."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def _settle_memory() -> None:
    """Exclude the objects of start-up from garbage collection, and collect rarely.

    Requests make few cycles; walking ten thousand partitions again and again would show up as
    pauses.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
