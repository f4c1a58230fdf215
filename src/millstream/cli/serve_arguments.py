"""What `millstream serve` may be given, read without a library: importing one would cost more time
than the broker needs to listen.

The options stand in one table; `app` takes its help texts from here, so that `millstream serve
--help` shows what this parser accepts (a test compares the two).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

DEFAULT_DATA_DIRECTORY: Final = "millstream-data"
DEFAULT_HOST: Final = "127.0.0.1"
DEFAULT_PORT: Final = 9092
CONSOLE_PORT: Final = 8090

OPTION_HELP: Final[Mapping[str, str]] = {
    "--override": "Set one broker setting as KEY=VALUE; may be repeated.",
    "--data-dir": f"Directory for all data (log.dirs); by default ./{DEFAULT_DATA_DIRECTORY}.",
    "--host": "Address to listen on and to advertise to clients; by default 127.0.0.1.",
    "--advertise": "Address that clients connect to, HOST or HOST:PORT; by default --host and "
    "--port. Needed with --host 0.0.0.0, for example in a container.",
    "--port": "Port to listen on; 0 lets the system pick; by default 9092.",
    "--brokers": "Brokers of one cluster on this machine, as processes over one data directory: a "
    "number, or auto for one per core; by default one broker on its own.",
    "--ports": "With --brokers: their ports, as 9092,9192; by default --port and those after it.",
    "--pin": "With --brokers: pin each broker to a core.",
    "--log-level": "The least severe messages in the log: debug, info, warning or error "
    "(log.level); by default info.",
    "--console": "Run the web console beside the broker, on this machine at port 8090, read only.",
    "--console-port": "Port of the console; 0 lets the system pick. Implies --console.",
    "--console-writes": "Let the console send records and reset groups. Implies --console.",
}

_FLAGS: Final = frozenset({"--pin", "--console", "--console-writes"})
"""Options without a value."""

_LOG_LEVELS: Final = ("debug", "info", "warning", "error")
"""Those of the setting, whose module would cost more time than the command line is worth."""

MAX_BROKERS: Final = 1_000


class UsageError(Exception):
    """The command line itself is wrong: exit code 2."""


@dataclass(frozen=True, slots=True)
class ServeArguments:
    """The command line of `serve`, read but not yet merged with files and environment."""

    properties_file: str | None = None
    overrides: tuple[tuple[str, str], ...] = ()
    data_dir: str | None = None
    host: str | None = None
    port: int | None = None
    advertise: str | None = None
    brokers: int | None = None
    """How many brokers; 0 is one per core, None one that is on its own."""
    ports: tuple[int, ...] = ()
    pins: bool = False
    console_port: int | None = None
    """Where the console listens; None runs none."""
    console_writes: bool = False


def parse_arguments(words: Sequence[str]) -> ServeArguments:
    """Read the words after ``serve``; UsageError says what is wrong with them."""
    arguments = ServeArguments()
    remaining = iter(words)
    for word in remaining:
        if word.startswith("-") and word != "-":
            arguments = _with_option(arguments, word, remaining)
        elif arguments.properties_file is not None:
            raise UsageError(f"only one properties file is allowed: {word!r} is the second")
        else:
            arguments = replace(arguments, properties_file=word)
    if arguments.brokers is None and (arguments.ports or arguments.pins):
        raise UsageError("--ports and --pin need --brokers")
    if arguments.ports and arguments.port is not None:
        raise UsageError("give one of --port and --ports")
    if arguments.advertise is not None and "advertised.listeners" in dict(arguments.overrides):
        raise UsageError("give one of --advertise and --override advertised.listeners")
    return arguments


def _with_option(arguments: ServeArguments, word: str, remaining: Iterator[str]) -> ServeArguments:
    name, equals, value = word.partition("=")
    if name not in OPTION_HELP:
        raise UsageError(f"no such option: {name} (options: {', '.join(OPTION_HELP)})")
    if name in _FLAGS:
        if equals:
            raise UsageError(f"{name} takes no value")
        return _SETTERS[name](arguments, "")
    if not equals:
        following = next(remaining, None)
        if following is None:
            raise UsageError(f"{name} needs a value")
        value = following
    return _SETTERS[name](arguments, value)


def _set_override(arguments: ServeArguments, text: str) -> ServeArguments:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise UsageError(f"--override takes KEY=VALUE, not {text!r}")
    pair = (name.strip(), value.strip())
    return replace(arguments, overrides=(*arguments.overrides, pair))


def _set_log_level(arguments: ServeArguments, text: str) -> ServeArguments:
    if text not in _LOG_LEVELS:
        raise UsageError(f"--log-level takes {', '.join(_LOG_LEVELS)}, not {text!r}")
    return replace(arguments, overrides=(*arguments.overrides, ("log.level", text)))


def _port(option: str, text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise UsageError(f"{option} takes a number from 0 to 65535, not {text!r}")
    return int(text)


def _set_advertise(arguments: ServeArguments, text: str) -> ServeArguments:
    host, port = _host_and_port(text)
    if not host or "/" in host or (port and (not port.isdecimal() or not 0 < int(port) < 65536)):
        raise UsageError(f"--advertise takes HOST or HOST:PORT, not {text!r}")
    return replace(arguments, advertise=text)


def _host_and_port(text: str) -> tuple[str, str]:
    """Split ``HOST``, ``HOST:PORT``, ``[::1]:PORT`` or a bare IPv6 address."""
    if text.startswith("[") or text.count(":") < 2:
        host, _, port = text.removeprefix("[").partition("]:" if text.startswith("[") else ":")
        return host.removesuffix("]"), port
    return text, ""


def _set_port(arguments: ServeArguments, text: str) -> ServeArguments:
    return replace(arguments, port=_port("--port", text))


def _set_ports(arguments: ServeArguments, text: str) -> ServeArguments:
    ports = tuple(_port("--ports", each.strip()) for each in text.split(","))
    if len(set(ports) - {0}) != len([each for each in ports if each]):
        raise UsageError("--ports names a port twice")
    return replace(arguments, ports=ports)


def _set_brokers(arguments: ServeArguments, text: str) -> ServeArguments:
    if text == "auto":
        return replace(arguments, brokers=0)
    if not text.isdecimal() or not 1 <= int(text) <= MAX_BROKERS:
        raise UsageError(f"--brokers takes a number from 1 to {MAX_BROKERS} or auto, not {text!r}")
    return replace(arguments, brokers=int(text))


def _set_console(
    arguments: ServeArguments, *, port: int | None = None, writes: bool = False
) -> ServeArguments:
    chosen = arguments.console_port if port is None else port
    return replace(
        arguments,
        console_port=CONSOLE_PORT if chosen is None else chosen,
        console_writes=arguments.console_writes or writes,
    )


_SETTERS: Final[Mapping[str, Callable[[ServeArguments, str], ServeArguments]]] = {
    "--override": _set_override,
    "--data-dir": lambda arguments, text: replace(arguments, data_dir=text),
    "--host": lambda arguments, text: replace(arguments, host=text),
    "--port": _set_port,
    "--advertise": _set_advertise,
    "--brokers": _set_brokers,
    "--ports": _set_ports,
    "--log-level": _set_log_level,
    "--pin": lambda arguments, _: replace(arguments, pins=True),
    "--console": lambda arguments, _: _set_console(arguments),
    "--console-port": lambda arguments, text: _set_console(
        arguments, port=_port("--console-port", text)
    ),
    "--console-writes": lambda arguments, _: _set_console(arguments, writes=True),
}


def settings_from_arguments(arguments: ServeArguments, known: Mapping[str, str]) -> dict[str, str]:
    """Return what the command line sets on top of ``known`` (file and environment).

    ``--host`` and ``--port`` together are the listener; one of them alone keeps the other's
    default. A broker that no file, variable or option gives a listener is for this machine only.
    """
    settings = dict(arguments.overrides)
    if arguments.data_dir is not None:
        settings["log.dirs"] = arguments.data_dir
    elif not {"log.dirs", "log.dir"} & (known.keys() | settings.keys()):
        settings["log.dirs"] = DEFAULT_DATA_DIRECTORY
    placed = arguments.host is not None or arguments.port is not None
    configured = arguments.properties_file is not None or "listeners" in (
        known.keys() | settings.keys()
    )
    if placed or not configured:
        host = DEFAULT_HOST if arguments.host is None else arguments.host
        port = DEFAULT_PORT if arguments.port is None else arguments.port
        shown = f"[{host}]" if ":" in host else host
        settings["listeners"] = f"PLAINTEXT://{shown}:{port}"
    if arguments.advertise is not None:
        settings["advertised.listeners"] = _advertised(arguments.advertise, {**known, **settings})
    return settings


def _advertised(address: str, settings: Mapping[str, str]) -> str:
    """Return ``advertised.listeners``: the address for the first listener, others as they are."""
    listeners = settings.get("listeners") or f"PLAINTEXT://:{DEFAULT_PORT}"  # Kafka's default
    name, _, place = listeners.partition(",")[0].strip().partition("://")
    host, port = _host_and_port(address)
    shown = f"[{host}]" if ":" in host else host
    told = [each.strip() for each in settings.get("advertised.listeners", "").split(",")]
    others = [each for each in told if each and not each.upper().startswith(f"{name.upper()}://")]
    return ",".join([f"{name}://{shown}:{port or place.rpartition(':')[2]}", *others])
