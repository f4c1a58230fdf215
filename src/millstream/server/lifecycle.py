"""The broker process: start, report the listeners, serve until a signal, stop cleanly."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import sys
from collections.abc import Callable

from millstream.config.broker import BrokerConfig, without_effect
from millstream.config.unguarded import unguarded
from millstream.platform import new_event_loop
from millstream.records.produce_kernel import why_not
from millstream.records.validation import WALKED_RECORDS
from millstream.runtime.logs.log_loading import LoadingStoppedError
from millstream.server.broker import Broker
from millstream.server.log_format import configure_log

log = logging.getLogger(__name__)

Handler = Callable[..., None]
Announce = Callable[[str, int, list[str]], None]
"""Called once with the host, the port and the log directories, when the broker is ready."""


NewBroker = Callable[[BrokerConfig, asyncio.AbstractEventLoop, Callable[[], None]], Broker]
"""Makes the broker for its settings, on a loop; what it is given last ends the process."""


def new_broker(
    config: BrokerConfig, loop: asyncio.AbstractEventLoop, on_fatal: Callable[[], None]
) -> Broker:
    """Make a broker on the real machine."""
    return Broker(config, loop, on_fatal=on_fatal)


def run(config: BrokerConfig, announce: Announce, new_broker: NewBroker = new_broker) -> int:
    """Serve until SIGTERM, SIGINT or SIGHUP; return the exit code: 0, or 1 when every disk has
    failed. SIGHUP stays ignored if it was, as under `nohup`. A broker that has listeners with TLS,
    or an audit log in a file, does not end by it: it reads its certificates and opens the file
    again. SIGUSR1 has it write into its log what it does and waits for.

    Raises ConfigError, StorageError or OSError when the broker cannot start.
    """
    configure_log(config.log_format, config.log_level, sys.stderr)
    _warn_of_settings(config)
    _warn_without_a_kernel()
    loop = new_event_loop()
    stopped = False
    broker: Broker | None = None

    def stop(*_: object) -> None:
        nonlocal stopped
        stopped = True
        if broker is not None:
            broker.interrupt()
        if not loop.is_closed():  # a second signal during the stop
            loop.call_soon_threadsafe(loop.stop)

    def hang_up(*_: object) -> None:
        if broker is None or not broker.hang_up():
            stop()

    _handle_signals(
        stop,
        hang_up,
        lambda *_: None if broker is None else broker.diagnose(),
        even_if_ignored=config.outlives_hang_up,
    )
    try:
        broker = new_broker(config, loop, stop)
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


def _handle_signals(
    stop: Handler, hang_up: Handler, diagnose: Handler, *, even_if_ignored: bool
) -> None:
    """Not by the loop's handlers: they would lose a signal that arrives while the loop does not
    run, as during start-up.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    signal.signal(signal.SIGUSR1, diagnose)
    if even_if_ignored or signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, hang_up)


def _warn_of_settings(config: BrokerConfig) -> None:
    """Log which settings do nothing here, and which protect less than they seem to."""
    ignored = without_effect(config.overrides)
    if ignored:
        log.warning("settings without effect here: %s", ", ".join(ignored))
    for sentence in unguarded(config):
        log.warning("%s", sentence)


def _warn_without_a_kernel() -> None:
    """Log what `record.validation=relaxed` does not check on this machine."""
    lack = why_not()
    if lack:
        log.warning(
            "record.validation=relaxed checks the records of batches of up to %d records only: %s",
            WALKED_RECORDS,
            lack,
        )


def _settle_memory() -> None:
    """Exclude the objects of start-up from garbage collection, and collect rarely.

    Requests make few cycles; walking ten thousand partitions again and again would show up as
    pauses. Nothing is collected first: collections ran while the modules were loaded, and the first
    client would wait for one that finds next to nothing.
    """
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
