"""A finding: what is wrong, how bad it is, and the command that mends it. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from millstream.client.doctor import Severity
from millstream.config.quantities import human_duration

_NAMED: Final = 5


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
    """Return a duration as people write it."""
    return human_duration(milliseconds / 1000)
