"""What a setting's value is checked against, with Kafka's words of refusal.

A validator is called with a setting's name and value and raises ConfigError; its text tells what
is allowed. Plain classes, because there are hundreds and a broker makes them all when it starts.
"""

from __future__ import annotations

from typing import Final

from millstream.config.value import Value, invalid, parse_integer
from millstream.model.errors import ConfigError


class Validator:
    """Accepts everything; others derive from it."""

    __slots__ = ()

    def __call__(self, name: str, value: Value) -> None:
        """Raise ConfigError when ``value`` is not valid for ``name``."""

    def __str__(self) -> str:
        return ""


class Range(Validator):
    """A number between two bounds, both included; None leaves a side open."""

    __slots__ = ("maximum", "minimum")

    def __init__(self, minimum: float | None, maximum: float | None) -> None:
        self.minimum = minimum
        self.maximum = maximum

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


class OneOf(Validator):
    """One of a few texts."""

    __slots__ = ("allowed",)

    def __init__(self, allowed: tuple[str, ...]) -> None:
        self.allowed = allowed

    def __call__(self, name: str, value: Value) -> None:
        """Refuse a text that is not among them."""
        assert isinstance(value, str)
        if value not in self.allowed:
            raise invalid(name, value, f"String must be one of: {', '.join(self.allowed)}")

    def __str__(self) -> str:
        return ", ".join(f"`{text}`" for text in self.allowed)


class NotEmpty(Validator):
    """A list with an item at least, and with no empty one (Kafka: ``ConfigDef.ValidList``)."""

    __slots__ = ()

    def __call__(self, name: str, value: Value) -> None:
        """Refuse a list of nothing, and one with a comma too many."""
        assert isinstance(value, tuple)
        if not value:
            raise ConfigError(
                f"Configuration '{name}' must not be empty. Valid values include: any non-empty "
                "value"
            )
        if "" in value:
            raise ConfigError(f"Configuration '{name}' values must not be empty.")

    def __str__(self) -> str:
        return "not empty"


class EachOf(Validator):
    """A list whose items all belong to a few texts."""

    __slots__ = ("allowed",)

    def __init__(self, allowed: tuple[str, ...]) -> None:
        self.allowed = allowed

    def __call__(self, name: str, value: Value) -> None:
        """Refuse a list with an item that is not among them."""
        assert isinstance(value, tuple)
        for item in value:
            if not item:
                raise ConfigError(f"Configuration '{name}' values must not be empty.")
            if item not in self.allowed:
                raise invalid(name, item, f"String must be one of: {', '.join(self.allowed)}")

    def __str__(self) -> str:
        return "any of " + ", ".join(f"`{text}`" for text in self.allowed)


class GzipLevel(Validator):
    """A level of gzip, or −1 for the default of the library (Kafka: ``GzipCompression``)."""

    __slots__ = ()

    def __call__(self, name: str, value: Value) -> None:
        """Refuse any other number."""
        assert isinstance(value, int)
        if value != -1 and not 1 <= value <= 9:
            raise invalid(name, value, "Value must be between 1 and 9 or equal to -1")

    def __str__(self) -> str:
        return "1 to 9, or -1"


class ThrottledReplicas(Validator):
    """Replicas as ``partition:broker``, or all (Kafka: ``ThrottledReplicaListValidator``)."""

    __slots__ = ()

    def __call__(self, name: str, value: Value) -> None:
        """Refuse a list of anything else."""
        assert isinstance(value, tuple)
        if value == ("*",) or all(map(_is_replica, value)):
            return
        raise invalid(
            name,
            value,
            f"{name} must be the literal '*' or a list of replicas in the following format: "
            "[partitionId]:[brokerId],[partitionId]:[brokerId],...",
        )

    def __str__(self) -> str:
        return "`*`, or `partition:broker`, …"


class HostCounts(Validator):
    """Hosts with a number each, ``host:count`` (Kafka: ``SocketServerConfigs``)."""

    __slots__ = ()

    def __call__(self, name: str, value: Value) -> None:
        """Refuse a list with an item that is anything else."""
        assert isinstance(value, str)
        for item in filter(None, value.split(",")):
            host, _, count = item.rpartition(":")
            if not host.strip() or not _is_number(count.strip()):
                raise invalid(name, value, "must be `host:count`, separated by commas")

    def __str__(self) -> str:
        return "`host:count`, …"


def _is_replica(item: str) -> bool:
    partition, _, broker = item.partition(":")
    return _is_number(partition) and _is_number(broker)


def _is_number(text: str) -> bool:
    """Tell whether a text is a 32-bit number in ASCII digits, without a sign."""
    return text.isascii() and text.isdecimal() and parse_integer(text, 32) is not None


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


not_empty: Final = NotEmpty()
host_counts: Final = HostCounts()
gzip_level: Final = GzipLevel()
throttled_replicas: Final = ThrottledReplicas()
