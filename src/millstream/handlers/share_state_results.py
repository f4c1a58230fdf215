"""What the handlers of the share coordinator have in common: each share partition has its own
result.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias, TypeVar

from millstream.model.deferred import Deferred
from millstream.model.errors import KafkaError
from millstream.model.topic import TopicId

R = TypeVar("R")

Outcome: TypeAlias = tuple[TopicId, int, R | KafkaError]
"""A topic, a partition, and what came of it."""


async def settled(begun: Sequence[tuple[TopicId, int, Deferred[R]]]) -> list[Outcome[R]]:
    """Wait for every share partition, and return what came of each; of one that is named twice,
    what came of the last time.
    """
    outcomes: dict[tuple[TopicId, int], R | KafkaError] = {}
    for topic_id, partition, reply in begun:
        try:
            outcomes[topic_id, partition] = await reply
        except KafkaError as error:
            outcomes[topic_id, partition] = error
    return [(*place, outcome) for place, outcome in outcomes.items()]


def refused(parts: Iterable[tuple[TopicId, Iterable[int]]], error: KafkaError) -> list[Outcome[R]]:
    """Return one error for every share partition."""
    return [(topic_id, index, error) for topic_id, indexes in parts for index in indexes]


def error_fields(outcome: object) -> tuple[int, str | None]:
    """Return the error code and message of a result."""
    if isinstance(outcome, KafkaError):
        return outcome.error.code, outcome.message or outcome.error.name
    return 0, None
