"""``auto.offset.reset``: where to read when there is no position (KIP-1106 for by_duration)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Final

from millstream.model.errors import ConfigError

EARLIEST_TIMESTAMP: Final = -2
LATEST_TIMESTAMP: Final = -1

_DURATION = re.compile(
    r"P(?:(?P<days>\d+)D)?"
    r"(?:T(?=\d)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d{1,9})?)S)?)?",
    re.IGNORECASE,
)
_MS: Final = {"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1000}


class ResetKind(Enum):
    """The strategies, by their names in the setting."""

    EARLIEST = "earliest"
    LATEST = "latest"
    NONE = "none"
    BY_DURATION = "by_duration"


@dataclass(frozen=True, slots=True)
class ResetStrategy:
    """One strategy; ``duration_ms`` is how far back by_duration goes from now."""

    kind: ResetKind
    duration_ms: int = 0

    def timestamp(self, now_ms: int) -> int:
        """Return the timestamp for ListOffsets; not called for ``none``."""
        if self.kind is ResetKind.EARLIEST:
            return EARLIEST_TIMESTAMP
        if self.kind is ResetKind.LATEST:
            return LATEST_TIMESTAMP
        assert self.kind is ResetKind.BY_DURATION, "none resets nothing"
        return now_ms - self.duration_ms


EARLIEST: Final = ResetStrategy(ResetKind.EARLIEST)
LATEST: Final = ResetStrategy(ResetKind.LATEST)
NONE: Final = ResetStrategy(ResetKind.NONE)


def parse_reset(text: str) -> ResetStrategy:
    """Read the setting: earliest, latest, none, or by_duration: with an ISO 8601 duration.

    ConfigError for anything else; months and years have no fixed length and
    are refused, as a negative duration is.
    """
    name, colon, duration = text.strip().partition(":")
    name = name.lower()
    if name == "by_duration" and colon:
        return ResetStrategy(ResetKind.BY_DURATION, _duration_ms(duration))
    for strategy in (EARLIEST, LATEST, NONE):
        if name == strategy.kind.value and not colon:
            return strategy
    raise ConfigError(
        f"auto.offset.reset is earliest, latest, none or by_duration:PnDTnHnMn.nS, not {text!r}"
    )


def _duration_ms(text: str) -> int:
    match = _DURATION.fullmatch(text)
    parts = {} if match is None else {k: v for k, v in match.groupdict().items() if v}
    if not parts:
        raise ConfigError(
            f"auto.offset.reset=by_duration:{text} is not a duration such as PT1H or P3DT4H "
            f"(ISO 8601)"
        )
    return int(sum(float(value) * _MS[name] for name, value in parts.items()))
