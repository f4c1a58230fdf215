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

OPTION_HELP: Final[Mapping[str, str]] = {
    "--override": "Set one broker setting as KEY=VALUE; may be repeated.",
    "--data-dir": f"Directory for all data (log.dirs); by default ./{DEFAULT_DATA_DIRECTORY}.",
    "--host": "Address to listen on and to tell clients; by default 127.0.0.1.",
    "--port": "Port to listen on; 0 lets the system pick; by default 9092.",
}


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


def parse_arguments(words: Sequence[str]) -> ServeArguments:
    """Read the words after ``serve``; UsageError says what is wrong with them."""
    arguments = ServeArguments()
    remaining = iter(words)
    for word in remaining:
        if word.startswith("-") and word != "-":
            arguments = _with_option(arguments, word, remaining)
        elif arguments.properties_file is not None:
            raise UsageError(f"one properties file at most: {word!r} is a second one")
        else:
            arguments = replace(arguments, properties_file=word)
    return arguments


def _with_option(arguments: ServeArguments, word: str, remaining: Iterator[str]) -> ServeArguments:
    name, equals, value = word.partition("=")
    if name not in OPTION_HELP:
        raise UsageError(f"no such option: {name} (there are {', '.join(OPTION_HELP)})")
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


def _set_port(arguments: ServeArguments, text: str) -> ServeArguments:
    if not text.isdecimal() or int(text) > 65535:
        raise UsageError(f"--port takes a number from 0 to 65535, not {text!r}")
    return replace(arguments, port=int(text))


_SETTERS: Final[Mapping[str, Callable[[ServeArguments, str], ServeArguments]]] = {
    "--override": _set_override,
    "--data-dir": lambda arguments, text: replace(arguments, data_dir=text),
    "--host": lambda arguments, text: replace(arguments, host=text),
    "--port": _set_port,
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
    return settings
