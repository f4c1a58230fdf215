"""`millstream serve`: put the settings together and run one broker until it is told to stop."""

from __future__ import annotations

import errno
import gc
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.cli.failures import (
    FAILED,
    INTERRUPTED,
    WRONG_USAGE,
    CommandFailedError,
    complain,
    sentence,
)
from millstream.cli.serve_arguments import (
    ServeArguments,
    UsageError,
    parse_arguments,
    settings_from_arguments,
)
from millstream.model.errors import MillstreamError
from millstream.platform import RUNS_BROKERS

if TYPE_CHECKING:
    from millstream.cli.serve_console import ConsoleBeside
    from millstream.config.broker import BrokerConfig


def serve(words: Sequence[str]) -> int:
    """Run a broker with the command line ``words``; return the exit code of the process."""
    try:
        arguments = parse_arguments(words)
    except UsageError as error:
        complain(f"serve: {error} (see millstream serve --help)")
        return WRONG_USAGE
    try:
        if not RUNS_BROKERS:
            raise CommandFailedError(
                "a broker needs Linux or macOS: this system has no POSIX file locks. Clients and "
                "their commands work here"
            )
        with _loading_code():
            config = broker_config(arguments, os.environ)
        console = None
        if arguments.console_port is not None:
            from millstream.cli.serve_console import ConsoleBeside

            console = ConsoleBeside(arguments, config)
        with console or nullcontext():
            if arguments.brokers is not None:
                from millstream.cli.serve_brokers import serve_brokers

                return serve_brokers(arguments, config, console)
            return _run(config, console)
    except (MillstreamError, OSError) as error:
        complain(f"serve: {sentence(error)}")
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED


def _run(config: BrokerConfig, console: ConsoleBeside | None) -> int:
    with _loading_code():
        from millstream.server.lifecycle import run

    def ready(host: str, port: int, directories: list[str]) -> None:
        announce(host, port, directories)
        others = other_brokers(directories)
        if others and not config.metadata_keeper_socket:
            names = ", ".join(map(str, others))
            complain(
                f"serve: the directory has data of other brokers too ({names}), which do not run: "
                f"--brokers {len(others) + 1} starts them all"
            )
        if console is not None:
            console.start([address(host, port)], directories)

    try:
        return run(config, ready)
    except OSError as error:
        if error.errno in (errno.EADDRINUSE, errno.EADDRNOTAVAIL):
            places = ", ".join(config.listeners)
            hint = "; choose another --port" if error.errno == errno.EADDRINUSE else ""
            raise CommandFailedError(
                f"cannot listen on {places}: {error.strerror}{hint}"
            ) from error
        raise


@contextmanager
def _loading_code() -> Iterator[None]:
    """Leave what modules bring out of garbage collection: all of it stays, and looking through it
    again and again takes a twentieth of a start.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def other_brokers(directories: Sequence[str]) -> list[int]:
    """Return the ids of the brokers that ``--brokers`` has given directories beside those of the
    first one.
    """
    from millstream.cli.brokers_plan import directory_name

    prefix = directory_name("")
    found = {
        int(path.name.removeprefix(prefix))
        for directory in directories
        for path in Path(directory).glob(f"{prefix}*")
        if path.name.removeprefix(prefix).isdecimal()
    }
    return sorted(found)


def broker_config(arguments: ServeArguments, environment: Mapping[str, str]) -> BrokerConfig:
    """Merge file, environment and command line, the later over the earlier.

    Values that stand elsewhere (``${env:NAME}``) are looked up: taken as it stands, such a text
    would be a password that everybody knows who reads the file. ConfigError names the setting that
    is wrong.
    """
    from millstream.config.broker import BrokerConfig, all_known_names
    from millstream.config.listeners import refuse_replaced
    from millstream.config.properties import from_environment, parse_properties
    from millstream.config.references import resolve

    settings: dict[str, str] = {}
    if arguments.properties_file is not None:
        settings |= parse_properties(_text(Path(arguments.properties_file).read_bytes()))
    settings |= from_environment(environment, all_known_names())
    chosen = settings | dict(arguments.overrides)
    settings |= settings_from_arguments(arguments, settings)
    # Options replace a listener, and not the protection that was asked for with it.
    refuse_replaced(chosen, settings)
    return BrokerConfig(resolve(settings, environment))


def _text(data: bytes) -> str:
    """Return a properties file as text: UTF-8, and what is not is the Latin-1 of Java's own."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("latin-1")


def announce(host: str, port: int, directories: list[str]) -> None:
    """Print the first line of output: where the broker listens and where its data lies."""
    place = address(host, port)
    print(f"millstream listening on {place}, data in {', '.join(directories)}", flush=True)


def address(host: str, port: int) -> str:
    """Return an address as clients take it: one of IPv6 stands in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
