"""The client's side of a share session with one broker (KIP-932).

A session is made by a ShareFetch of epoch 0 that names every partition and acknowledges nothing.
From then on requests, ShareFetch and ShareAcknowledge alike, have the next epoch; a ShareFetch
names added and forgotten partitions only::

    request                             answer           next request
    (0) every partition                 no error         (1) changes
    (n) changes, acknowledgements       no error         (n + 1)
    any                                 an error for     (0)
                                        all, or none
    (−1) ShareAcknowledge               the session and the acquisitions of its records end

Epochs run from 1 to 2^31 − 1 and then from 1 again. Kafka: ``ShareSessionHandler``,
``ShareRequestMetadata``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from millstream.client.core.share.acknowledgements import AcknowledgedRange
from millstream.model.topic import TopicId
from millstream.protocol.messages.share_acknowledge import (
    AcknowledgementBatch as AcknowledgeBatch,
)
from millstream.protocol.messages.share_acknowledge import AcknowledgePartition, AcknowledgeTopic
from millstream.protocol.messages.share_fetch import (
    AcknowledgementBatch as FetchBatch,
)
from millstream.protocol.messages.share_fetch import FetchPartition, FetchTopic, ForgottenTopic

NEW_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
_MAX_EPOCH: Final = 2**31 - 1

SharePartition: TypeAlias = tuple[TopicId, int]
"""A topic's id and a partition's index."""

Ranges: TypeAlias = Mapping[SharePartition, list[AcknowledgedRange]]


@dataclass(frozen=True, slots=True)
class SharePlan:
    """The partitions of the next ShareFetch."""

    epoch: int
    added: list[SharePartition]
    forgotten: list[SharePartition]


class ShareSession:
    """The session of this consumer with one broker."""

    def __init__(self) -> None:
        self.epoch = NEW_EPOCH
        self.number = 0
        """Counts the sessions with this broker."""
        self.partitions: dict[SharePartition, None] = {}

    @property
    def is_new(self) -> bool:
        """True if the next request has to make a session, and so can acknowledge nothing."""
        return self.epoch == NEW_EPOCH

    def plan(self, wanted: Iterable[SharePartition]) -> SharePlan:
        """Return what makes the broker fetch exactly ``wanted``."""
        before = {} if self.is_new else self.partitions
        self.partitions = dict.fromkeys(wanted)
        return SharePlan(
            self.epoch,
            [each for each in self.partitions if each not in before],
            [each for each in before if each not in self.partitions],
        )

    def on_success(self) -> None:
        """Handle an answer without an error for all of it."""
        self.epoch = 1 if self.epoch == _MAX_EPOCH else self.epoch + 1

    def on_failure(self) -> None:
        """Handle a missing answer, or an error for all of it: make another session."""
        self.epoch = NEW_EPOCH
        self.number += 1


def fetch_topics(added: Iterable[SharePartition], acknowledged: Ranges) -> list[FetchTopic]:
    """Return the topics of a ShareFetch: added partitions, and those with acknowledgements."""
    topics: dict[TopicId, FetchTopic] = {}
    for key in dict.fromkeys((*added, *acknowledged)):
        topic_id, partition = key
        topic = topics.setdefault(topic_id, FetchTopic(topic_id=topic_id, partitions=[]))
        batches = [
            FetchBatch(
                first_offset=each.first,
                last_offset=each.last,
                acknowledge_types=list(each.types),
            )
            for each in acknowledged.get(key, ())
        ]
        topic.partitions.append(
            FetchPartition(partition_index=partition, acknowledgement_batches=batches)
        )
    return list(topics.values())


def forgotten_topics(forgotten: Iterable[SharePartition]) -> list[ForgottenTopic]:
    """Return the partitions that a ShareFetch takes out of the session."""
    topics: dict[TopicId, ForgottenTopic] = {}
    for topic_id, partition in forgotten:
        topic = topics.setdefault(topic_id, ForgottenTopic(topic_id=topic_id, partitions=[]))
        topic.partitions.append(partition)
    return list(topics.values())


def acknowledge_topics(acknowledged: Ranges) -> list[AcknowledgeTopic]:
    """Return the topics of a ShareAcknowledge."""
    topics: dict[TopicId, AcknowledgeTopic] = {}
    for (topic_id, partition), ranges in acknowledged.items():
        topic = topics.setdefault(topic_id, AcknowledgeTopic(topic_id=topic_id, partitions=[]))
        batches = [
            AcknowledgeBatch(
                first_offset=each.first,
                last_offset=each.last,
                acknowledge_types=list(each.types),
            )
            for each in ranges
        ]
        topic.partitions.append(
            AcknowledgePartition(partition_index=partition, acknowledgement_batches=batches)
        )
    return list(topics.values())
