"""The result of a call for several items: each item's own value or error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar, cast

from millstream.client.errors import BrokerError
from millstream.model.errors import ErrorCode, KafkaError

T = TypeVar("T")
K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T]):
    """The outcome of one item: ``value``, or ``error`` if it failed."""

    value: T | None = None
    error: KafkaError | None = None

    def get(self) -> T:
        """Return the value, or raise the error."""
        if self.error is not None:
            raise self.error
        return cast(T, self.value)


class Outcomes(dict[K, Outcome[T]]):
    """Outcomes by item; each may have succeeded or failed."""

    @property
    def errors(self) -> dict[K, KafkaError]:
        """The items that failed."""
        return {key: each.error for key, each in self.items() if each.error is not None}

    def get_all(self) -> dict[K, T]:
        """Return every value, or raise the first error."""
        return {key: each.get() for key, each in self.items()}


def refusal(code: int, message: str | None, about: str) -> BrokerError | None:
    """Return the error of a code, None for 0."""
    if code == 0:
        return None
    return BrokerError(ErrorCode.of(code), message or about)


def done(code: int, message: str | None, about: str) -> Outcome[None]:
    """Return the outcome of an item that has no value."""
    return Outcome(None, refusal(code, message, about))
