"""Reads Java `.properties` text, `name=value` items and `MILLSTREAM_*` environment variables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from millstream.model.errors import ConfigError

ENVIRONMENT_PREFIX: Final = "MILLSTREAM_"

CLIENT_PREFIX: Final = "MILLSTREAM_CLIENT_"
"""Variables of this prefix are settings of the clients under the commands."""

CATALOG_PREFIX: Final = "MILLSTREAM_CATALOG__"
"""Variables of this prefix say where catalogues of tables are: ``…PROD__URI`` for one ``prod``."""

OTHER_VARIABLES: Final = frozenset(
    {
        "MILLSTREAM_BOOTSTRAP_SERVERS",
        "MILLSTREAM_KERNEL",
        "MILLSTREAM_PORTABLE",
        "MILLSTREAM_PROFILE",
        "MILLSTREAM_PROFILES",
        "MILLSTREAM_USER_PASSWORD",
    }
)
"""Variables of that prefix that are read and are no settings of a broker."""

_OF_KUBERNETES: Final = re.compile(
    r"MILLSTREAM_(?:\w+_)?(?:SERVICE_HOST|SERVICE_PORT(?:_\w+)?|"
    r"PORT_\d+_(?:TCP|UDP|SCTP)(?:_PROTO|_PORT|_ADDR)?)"
)
"""Addresses of services whose names begin with ``millstream``; the address as a whole, ``…_PORT``,
is told from a setting by its value, a URL."""

_SPACE: Final = " \t\f"
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|u|.)", re.DOTALL)
_KEY_END = re.compile(r"(?:[^\\=: \t\f]|\\.)*", re.DOTALL)
_LETTERS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(text: str) -> dict[str, str]:
    r"""Return the settings of a `.properties` text; the last of two equal names counts.

    As ``java.util.Properties.load``: comments begin with ``#`` or ``!``, a backslash at the end
    continues a line, ``=``, ``:`` or white space ends the name, ``\uXXXX`` and the usual escapes
    are read. A byte order mark at the beginning, which some editors put there, is not part of a
    name.
    """
    settings: dict[str, str] = {}
    for line in _logical_lines(text.removeprefix("\ufeff")):
        match = _KEY_END.match(line)
        assert match is not None
        rest = line[match.end() :].lstrip(_SPACE)
        if rest[:1] in ("=", ":"):
            rest = rest[1:].lstrip(_SPACE)
        settings[_unescape(match[0])] = _unescape(rest)
    return settings


def _logical_lines(text: str) -> Iterator[str]:
    pending: str | None = None
    for raw in re.split(r"\r\n|\r|\n", text):
        line = raw.lstrip(_SPACE)
        if pending is None and (not line or line[0] in "#!"):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        joined = (pending or "") + (line[:-1] if backslashes % 2 else line)
        pending = joined if backslashes % 2 else None
        if pending is None:
            yield joined
    if pending:
        yield pending


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    return _ESCAPE.sub(_character, text)


def _character(match: re.Match[str]) -> str:
    code = match[1]
    if code == "u":
        raise ConfigError("Malformed \\uxxxx encoding in a properties file")
    return chr(int(code[1:], 16)) if len(code) == 5 else _LETTERS.get(code, code)


def parse_overrides(items: Iterable[str]) -> dict[str, str]:
    """Return the settings of ``name=value`` items, as Kafka's ``--override`` takes them."""
    settings = {}
    for item in items:
        name, equals, value = item.partition("=")
        if not equals or not name.strip():
            raise ConfigError(f"{item!r} is not of the form name=value")
        settings[name.strip()] = value.strip()
    return settings


def from_environment(environment: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    """Return the settings that ``MILLSTREAM_*`` variables give: ``MILLSTREAM_LOG_DIRS`` sets
    `log.dirs`.

    ConfigError for a variable of that prefix that sets nothing, with the nearest that does. What
    Kubernetes sets in every container for a service called ``millstream`` is left alone.
    """
    by_variable = {ENVIRONMENT_PREFIX + name.upper().replace(".", "_"): name for name in names}
    settings = {}
    for variable, value in environment.items():
        if variable in by_variable:
            settings[by_variable[variable]] = value
        elif variable.startswith(ENVIRONMENT_PREFIX) and not _is_of_others(variable, value):
            raise ConfigError(_sets_nothing(variable, [*by_variable, *OTHER_VARIABLES]))
    return settings


def _is_of_others(variable: str, value: str) -> bool:
    if variable in OTHER_VARIABLES or variable.startswith((CLIENT_PREFIX, CATALOG_PREFIX)):
        return True
    return is_of_kubernetes(variable, value)


def is_of_kubernetes(variable: str, value: str) -> bool:
    """Tell whether a variable is one that Kubernetes sets for a service in every container."""
    if _OF_KUBERNETES.fullmatch(variable):
        return True
    return variable.endswith("_PORT") and "://" in value


def _sets_nothing(variable: str, known: Iterable[str]) -> str:
    from difflib import get_close_matches

    # Without the prefix, which all have: with it every short name is near every other.
    names = [name.removeprefix(ENVIRONMENT_PREFIX) for name in known]
    given = variable.removeprefix(ENVIRONMENT_PREFIX).upper()
    near = get_close_matches(given, names, n=1, cutoff=0.7)
    hint = f"; the nearest is {ENVIRONMENT_PREFIX}{near[0]}" if near else ""
    return f"{variable} sets nothing{hint}"
