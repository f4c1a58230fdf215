"""Settings of a client whose values stand elsewhere: ``${env:NAME}``, ``${file:PATH:KEY}``,
``${directory:PATH:FILE}`` (see ``config.references``).

Only a text that has such a reference in it is looked at, and only what it names is read.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final, TypeVar

from millstream.client.core.security_settings import SecuritySettings
from millstream.client.core.settings import read_settings

_REFERENCE: Final = "${"

S = TypeVar("S", bound=SecuritySettings)


def looked_up(settings: Mapping[str, object] | None) -> Mapping[str, object]:
    """Return the settings with their references replaced; ConfigError, without any value, for
    what is not there.
    """
    given = settings or {}
    texts = {
        name: value
        for name, value in given.items()
        if isinstance(value, str) and _REFERENCE in value
    }
    if not texts:
        return given
    from millstream.config.references import resolve

    return {**given, **resolve(texts, os.environ)}


def read_given(
    kind: type[S], settings: Mapping[str, object] | None, keywords: Mapping[str, object]
) -> S:
    """Return the settings of ``kind``; see ``core.settings.read_settings``."""
    return read_settings(kind, looked_up(settings), looked_up(keywords))
