"""The client's side of an incremental fetch session with one broker (KIP-227).

The first request is full: session id 0, epoch 0. A broker that creates a session returns its id;
from then on a request has the changed and the forgotten partitions, with the next epoch::

    request                            answer          next request
    (0, 0) every partition             id = 0          (0, 0) again: no session granted
    (0, 0) or (id, 0) every partition  id = 7          (7, 1) changes
    (7, n) changes                     id = 7          (7, n + 1) changes
    (7, n)                             error 70        (0, 0): the broker has evicted it
    (7, n)                             other error,    (7, 0): close that one, open another
                                       or no answer

Epochs run from 1 to 2^31 − 1 and then from 1 again; −1 closes. Kafka: ``FetchSessionHandler``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from millstream.model.errors import ErrorCode
from millstream.model.offsets import LeaderEpoch, Offset
from millstream.model.topic import ZERO_TOPIC_ID, TopicId, TopicPartition
from millstream.protocol.messages.fetch import FetchPartition, FetchTopic, ForgottenTopic

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
_MAX_EPOCH: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class FetchTarget:
    """The fetch parameters of one partition."""

    topic_id: TopicId
    offset: Offset
    max_bytes: int
    leader_epoch: LeaderEpoch


@dataclass(frozen=True, slots=True)
class FetchPlan:
    """The content of the next request to a broker."""

    session_id: int
    epoch: int
    topics: list[FetchTopic]
    forgotten: list[ForgottenTopic]
    uses_topic_ids: bool
    """False if some topic has no id: the request is sent in a version with names."""


class FetchSession:
    """The last request to one broker, and its session."""

    def __init__(self) -> None:
        self.session_id = NO_SESSION
        self.epoch = INITIAL_EPOCH
        self._targets: dict[TopicPartition, FetchTarget] = {}
        self._names: dict[TopicId, str] = {}
        self._used_ids = True

    @property
    def is_open(self) -> bool:
        """True if the broker has a session for this client."""
        return self.session_id != NO_SESSION

    def plan(self, wanted: Mapping[TopicPartition, FetchTarget]) -> FetchPlan:
        """Return the request that makes the broker fetch exactly ``wanted``, in its order."""
        uses_ids = all(each.topic_id != ZERO_TOPIC_ID for each in wanted.values())
        if uses_ids != self._used_ids:
            # A session uses either topic ids or names, not both (KIP-516).
            self._used_ids = uses_ids
            self.epoch = INITIAL_EPOCH
        before = {} if self.epoch == INITIAL_EPOCH else self._targets
        changed = {
            topic_partition: each
            for topic_partition, each in wanted.items()
            if before.get(topic_partition) != each
        }
        forgotten = [
            (topic_partition, each.topic_id)
            for topic_partition, each in before.items()
            if topic_partition not in wanted or wanted[topic_partition].topic_id != each.topic_id
        ]
        self._targets = dict(wanted)
        self._names = {
            each.topic_id: topic_partition.topic for topic_partition, each in wanted.items()
        }
        return FetchPlan(
            self.session_id, self.epoch, _by_topic(changed), _forgotten(forgotten), uses_ids
        )

    def name_of(self, topic_id: TopicId) -> str | None:
        """Return the topic that was requested by this id."""
        return self._names.get(topic_id)

    def on_answer(self, error: ErrorCode, session_id: int) -> bool:
        """Handle the session fields of a response; False if its partitions must not be used."""
        if error is not ErrorCode.NONE:
            if error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self.session_id = NO_SESSION
            self.epoch = INITIAL_EPOCH
            return False
        if session_id == NO_SESSION:
            self.session_id, self.epoch = NO_SESSION, INITIAL_EPOCH
            return True
        if self.epoch != INITIAL_EPOCH and session_id != self.session_id:
            self.session_id, self.epoch = NO_SESSION, INITIAL_EPOCH
            return False
        self.session_id = session_id
        self.epoch = 1 if self.epoch == _MAX_EPOCH else self.epoch + 1
        return True

    def on_failure(self) -> None:
        """Handle a missing response: the broker's epoch is unknown, so create a new session."""
        self.epoch = INITIAL_EPOCH


def _by_topic(targets: Mapping[TopicPartition, FetchTarget]) -> list[FetchTopic]:
    topics: dict[tuple[str, TopicId], FetchTopic] = {}
    for topic_partition, target in targets.items():
        key = (topic_partition.topic, target.topic_id)
        topic = topics.get(key)
        if topic is None:
            topic = FetchTopic(topic=topic_partition.topic, topic_id=target.topic_id, partitions=[])
            topics[key] = topic
        topic.partitions.append(
            FetchPartition(
                partition=topic_partition.partition,
                current_leader_epoch=target.leader_epoch,
                fetch_offset=target.offset,
                partition_max_bytes=target.max_bytes,
            )
        )
    return list(topics.values())


def _forgotten(topic_partitions: list[tuple[TopicPartition, TopicId]]) -> list[ForgottenTopic]:
    topics: dict[tuple[str, TopicId], ForgottenTopic] = {}
    for topic_partition, topic_id in topic_partitions:
        key = (topic_partition.topic, topic_id)
        if key not in topics:
            topics[key] = ForgottenTopic(
                topic=topic_partition.topic, topic_id=topic_id, partitions=[]
            )
        topics[key].partitions.append(topic_partition.partition)
    return list(topics.values())
