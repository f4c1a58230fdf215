"""Values of settings that stand elsewhere: ``${env:NAME}``, ``${file:PATH:KEY}``,
``${directory:PATH:FILE}``.

The names and the form are those of Kafka's config providers (KIP-297, KIP-421, KIP-887). A secret
need not be on a command line, nor in a file that others read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from millstream.config.properties import parse_properties
from millstream.model.errors import ConfigError

_REFERENCE: Final = re.compile(r"\$\{(env|file|directory):([^{}]*)\}")

ReadFile = Callable[[Path], str]


def read_text(path: Path) -> str:
    """Return what a file has in it."""
    return path.read_text(encoding="utf-8")


def resolve(
    settings: Mapping[str, str], environment: Mapping[str, str], read: ReadFile = read_text
) -> dict[str, str]:
    """Return the settings with their references replaced.

    ConfigError, without any value, for a variable, a file or a key that is not there.
    """
    found = {}
    for name, text in settings.items():
        replace = partial(_value, name, environment, read)
        found[name] = _REFERENCE.sub(replace, text)
    return found


def _value(
    setting: str, environment: Mapping[str, str], read: ReadFile, match: re.Match[str]
) -> str:
    provider, rest = match[1], match[2]
    if provider == "env":
        if rest not in environment:
            raise ConfigError(f"{setting}: there is no environment variable {rest}")
        return environment[rest]
    place, colon, key = rest.rpartition(":")
    if not colon or not place or not key:
        raise ConfigError(f"{setting}: {match[0]} is not ${{{provider}:PATH:NAME}}")
    path = Path(place) if provider == "file" else Path(place) / key
    try:
        text = read(path)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise ConfigError(f"{setting}: {path} cannot be read: {reason}") from None
    if provider == "directory":
        return text.removesuffix("\n").removesuffix("\r")
    found = parse_properties(text)
    if key not in found:
        raise ConfigError(f"{setting}: {path} has no {key}")
    return found[key]
