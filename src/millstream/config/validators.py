"""What a setting's value is checked against, with Kafka's words of refusal."""

from __future__ import annotations

import re
from dataclasses import dataclass

from millstream.config.value import Value, invalid
from millstream.model.errors import ConfigError

_REPLICA = re.compile(r"\d+:\d+\Z", re.ASCII)


@dataclass(frozen=True, slots=True)
class Range:
    """A number between two bounds, both included; None leaves a side open."""

    minimum: float | None
    maximum: float | None

    def __call__(self, name: str, value: Value) -> None:
        """Refuse a number outside the bounds."""
        assert isinstance(value, int | float)
        if self.minimum is not None and value < self.minimum:
            raise invalid(name, value, f"Value must be at least {self.minimum}")
        if self.maximum is not None and value > self.maximum:
            raise invalid(name, value, f"Value must be no more than {self.maximum}")

    def __str__(self) -> str:
        if self.maximum is None:
            return f"at least {self.minimum}"
        return f"{self.minimum} to {self.maximum}"


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of a few texts."""

    allowed: tuple[str, ...]
    ignore_case: bool = False

    def __call__(self, name: str, value: Value) -> None:
        """Refuse a text that is not among them."""
        assert isinstance(value, str)
        known = self.allowed
        if self.ignore_case:
            value, known = value.lower(), tuple(text.lower() for text in known)
        if value not in known:
            raise invalid(name, value, f"String must be one of: {', '.join(self.allowed)}")

    def __str__(self) -> str:
        return ", ".join(self.allowed)


@dataclass(frozen=True, slots=True)
class EachOf:
    """A list whose items all belong to a few texts; without texts, any items that are not empty."""

    allowed: tuple[str, ...] = ()

    def __call__(self, name: str, value: Value) -> None:
        """Refuse a list with an item that is not among them."""
        assert isinstance(value, tuple)
        for item in value:
            if not item:
                raise ConfigError(f"Configuration '{name}' values must not be empty.")
            if self.allowed and item not in self.allowed:
                raise invalid(name, item, f"String must be one of: {', '.join(self.allowed)}")

    def __str__(self) -> str:
        return f"list of {', '.join(self.allowed)}" if self.allowed else "list"


def at_least(minimum: int) -> Range:
    """Return a range without an upper bound."""
    return Range(minimum, None)


def between(minimum: int, maximum: int) -> Range:
    """Return a range with both bounds."""
    return Range(minimum, maximum)


def one_of(*allowed: str) -> OneOf:
    """Return a choice of texts."""
    return OneOf(allowed)


def each_of(*allowed: str) -> EachOf:
    """Return a list whose items are restricted to the texts given."""
    return EachOf(allowed)


def gzip_level(name: str, value: Value) -> None:
    """Accept 1 to 9, and −1 for the default of the library (Kafka: ``GzipCompression``)."""
    assert isinstance(value, int)
    if value != -1 and not 1 <= value <= 9:
        raise invalid(name, value, "Value must be between 1 and 9 or equal to -1")


def throttled_replicas(name: str, value: Value) -> None:
    """Accept ``*`` or partition:broker pairs (Kafka: ``ThrottledReplicaListValidator``)."""
    assert isinstance(value, tuple)
    if value == ("*",) or all(_REPLICA.match(item) for item in value):
        return
    raise invalid(
        name,
        value,
        f"{name} must be the literal '*' or a list of replicas in the following format: "
        "[partitionId]:[brokerId],[partitionId]:[brokerId],...",
    )
