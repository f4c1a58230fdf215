"""Profiles: settings of the client for clusters that one works with, by name, in a TOML file.

    [production]
    "bootstrap.servers" = "kafka-1:9093,kafka-2:9093"
    "security.protocol" = "SASL_SSL"
    "sasl.password" = "${file:/run/secrets/kafka:password}"

``--profile production`` or ``MILLSTREAM_PROFILE`` takes one. The file is
``millstream/profiles.toml`` in ``$XDG_CONFIG_HOME`` (``~/.config``), or what
``MILLSTREAM_PROFILES`` names.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import typer

PROFILE_VARIABLE: Final = "MILLSTREAM_PROFILE"
_FILE_VARIABLE: Final = "MILLSTREAM_PROFILES"
_OPTION: Final = "--profile"


def profiles_file(environment: Mapping[str, str]) -> Path:
    """Return where the profiles are."""
    named = environment.get(_FILE_VARIABLE)
    if named:
        return Path(named).expanduser()
    home = environment.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(home).expanduser() / "millstream" / "profiles.toml"


def profile_settings(name: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a profile under Kafka's names; BadParameter says what is wrong."""
    path = profiles_file(environment)
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise typer.BadParameter(f"{path}: {reason}", param_hint=_OPTION) from None
    except tomllib.TOMLDecodeError as error:
        raise typer.BadParameter(f"{path}: {error}", param_hint=_OPTION) from None
    profile = found.get(name)
    if not isinstance(profile, dict):
        known = ", ".join(sorted(key for key, each in found.items() if isinstance(each, dict)))
        raise typer.BadParameter(
            f"{path} has no profile [{name}]; it has {known or 'none'}", param_hint=_OPTION
        )
    return {key: _text(value, f"{path}: [{name}] {key}") for key, value in profile.items()}


def _text(value: object, where: str) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    if isinstance(value, dict):
        raise typer.BadParameter(
            f'{where} is a table: write names with dots in quotes, "bootstrap.servers" = "…"',
            param_hint=_OPTION,
        )
    raise typer.BadParameter(f"{where} is not text or a number", param_hint=_OPTION)
