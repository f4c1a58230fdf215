"""The options ``kafka.security.*``, ``kafka.sasl.*`` and ``kafka.ssl.*`` of source and sink.

They are read and checked on the driver, and go to the executors with everything else that a task is
told; paths are the same files there. A value may stand elsewhere: ``${env:NAME}`` and
``${file:PATH:KEY}`` are replaced on the driver. A name that is not known is an error, because left
out it would leave a connection unprotected.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import fields
from functools import lru_cache
from typing import Final

from millstream.client.core.security import Security
from millstream.client.core.security_settings import ALIASES, SecuritySettings
from millstream.client.core.settings import AdminSettings, read_settings
from millstream.client.security import open_security
from millstream.config.references import resolve
from millstream.model.errors import ConfigError

_PROTECTS: Final = ("security.", "sasl.", "ssl.", "https.")
_KNOWN: Final = frozenset(
    each.name.replace("_", ".") for each in fields(SecuritySettings) if "reader" in each.metadata
) | frozenset(name.replace("_", ".") for name in ALIASES)
_NO_TEXT: Final = frozenset({"ssl.context", "sasl.oauth.token"})


def security_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Return those that protect a connection, of settings without ``kafka.``, resolved and checked.

    ConfigError names the option.
    """
    found = {}
    for name, text in settings.items():
        if not name.startswith(_PROTECTS):
            continue
        if name in _NO_TEXT:
            raise ConfigError(f"option kafka.{name} is not supported: it takes no text")
        if name not in _KNOWN:
            raise ConfigError(f"option kafka.{name} is not supported: this client has it not")
        found[name] = text.strip()
    try:
        found = resolve(found, os.environ)
        open_settings(found)
    except ConfigError as error:
        raise ConfigError(f"option kafka.{error}") from None
    return found


def open_settings(settings: Mapping[str, str]) -> Security:
    """Return what the settings come to; once in a process for the same ones: reading certificates
    takes longer than a small task.
    """
    return _opened(tuple(sorted(settings.items())))


@lru_cache(maxsize=16)
def _opened(items: tuple[tuple[str, str], ...]) -> Security:
    return open_security(read_settings(AdminSettings, {"bootstrap.servers": "-:1", **dict(items)}))
