"""A finding: what is wrong, how bad it is, and the command that mends it. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from millstream.client.doctor import Severity

_NAMED: Final = 5
_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, or that could not be found out."""

    severity: Severity
    subject: str
    """What it is about, as ``orders-0`` or ``broker 2``."""
    sentence: str
    remedy: str
    """A command that mends it, or that tells more where a person has to decide."""


def ranked(findings: Iterable[Finding]) -> list[Finding]:
    """Return findings, the worst first; those of one severity stay in their order."""
    return sorted(findings, key=lambda each: -each.severity)


def not_told(subject: str, about: str, reason: str) -> Finding:
    """Return the note that something could not be found out on this cluster."""
    return Finding(
        Severity.NOTE,
        subject,
        f"{about} could not be found out: {reason}",
        "millstream cluster api-versions",
    )


def names(items: Sequence[object]) -> str:
    """Return the first few of some names, and how many more there are."""
    shown = ", ".join(str(each) for each in items[:_NAMED])
    return shown if len(items) <= _NAMED else f"{shown} and {len(items) - _NAMED} more"


def quoted(name: object) -> str:
    """Return a name as one word of a shell."""
    return shlex.quote(str(name))


def duration(milliseconds: float) -> str:
    """Return a duration as ``3 m 20 s``: its two largest units."""
    seconds = int(milliseconds / 1000)
    parts = []
    for length, unit in _UNITS:
        count, seconds = divmod(seconds, length)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2]) or "less than 1 s"


def size(count: float) -> str:
    """Return a size as people write it: ``512 B``, ``2.4 GB``."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def count_of(number: int, one: str, many: str = "") -> str:
    """Return a number with its noun: ``1 record``, ``3 records``."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
