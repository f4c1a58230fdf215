"""``share.auto.offset.reset``: where a share group begins of which nothing is known.

``earliest``, ``latest``, or ``by_duration:PnDTnHnMn.nS``: so long ago. Kafka:
``ShareGroupAutoOffsetResetStrategy``.
"""

from __future__ import annotations

import re
from enum import Enum

from millstream.config.validators import Validator
from millstream.config.value import Value, invalid

_DURATION = re.compile(
    r"p(?:(\d+)d)?(?:t(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)(?:\.(\d{1,9}))?s)?)?", re.ASCII
)
"""An ISO-8601 duration of days and less, as Java's ``Duration.parse`` reads it."""


class OffsetReset(Enum):
    """The kinds of starting points."""

    EARLIEST = "earliest"
    LATEST = "latest"
    BY_DURATION = "by_duration"


def parse_offset_reset(text: str) -> tuple[OffsetReset, int]:
    """Return where to begin, and with BY_DURATION how long ago in milliseconds, else 0; ValueError
    for anything else.
    """
    name, colon, duration = text.lower().partition(":")
    reset = OffsetReset(name)
    if reset is not OffsetReset.BY_DURATION:
        if colon:
            raise ValueError(f"{name} has no duration: {text!r}")
        return reset, 0
    found = _DURATION.fullmatch(duration)
    if found is None or not any(found.groups()) or duration.endswith("t"):
        raise ValueError(f"not a duration: {text!r}")
    days, hours, minutes, seconds = (int(each or 0) for each in found.groups()[:4])
    fraction_ms = int((found.group(5) or "").ljust(3, "0")[:3])
    return reset, (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000 + fraction_ms


class OffsetResetText(Validator):
    """A text that :func:`parse_offset_reset` reads."""

    __slots__ = ()

    def __call__(self, name: str, value: Value) -> None:
        """Refuse anything else."""
        assert isinstance(value, str)
        try:
            parse_offset_reset(value)
        except ValueError:
            why = (
                f"Invalid value `{value}` for configuration {name}. The value must be either "
                "'earliest', 'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'."
            )
            raise invalid(name, value, why) from None

    def __str__(self) -> str:
        return "`earliest`, `latest`, `by_duration:PnDTnHnMn.nS`"
