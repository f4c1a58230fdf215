from __future__ import annotations

import pytest
from tests.unit.handlers.group_calls import Calls

from millstream.model.topic import ZERO_TOPIC_ID, TopicId
from millstream.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)

TOPIC_ID = TopicId(b"t" * 16)


def topic(
    name: str, *partitions: int, topic_id: TopicId = ZERO_TOPIC_ID
) -> OffsetCommitRequestTopic:
    return OffsetCommitRequestTopic(
        name=name,
        topic_id=topic_id,
        partitions=[
            OffsetCommitRequestPartition(
                partition_index=index, committed_offset=10 + index, committed_metadata="m"
            )
            for index in partitions
        ],
    )


def commit(
    calls: Calls,
    *topics: OffsetCommitRequestTopic,
    version: int = 9,
    group_id: str = "g",
    member_id: str = "",
    generation_id: int = -1,
) -> list[tuple[str, list[tuple[int, int]]]]:
    request = OffsetCommitRequest(
        group_id=group_id,
        member_id=member_id,
        generation_id_or_member_epoch=generation_id,
        topics=list(topics),
    )
    response = calls.call(request, version, OffsetCommitResponse)
    return [
        (
            answer.name or answer.topic_id.hex()[:2],
            [(p.partition_index, p.error_code) for p in answer.partitions],
        )
        for answer in response.topics
    ]


@pytest.mark.parametrize("version", range(2, 10))
def test_every_version_by_name(calls: Calls, version: int) -> None:
    calls.site.create("t", 2, TOPIC_ID)
    assert commit(calls, topic("t", 0, 1), version=version) == [("t", [(0, 0), (1, 0)])]


def test_version_10_by_id(calls: Calls) -> None:
    calls.site.create("t", 2, TOPIC_ID)
    unknown = TopicId(b"u" * 16)
    assert commit(
        calls,
        topic("", 0, topic_id=unknown),
        topic("", 0, 5, topic_id=TOPIC_ID),
        version=10,
    ) == [("75", [(0, 100)]), ("74", [(5, 3), (0, 0)])]


def test_what_does_not_exist_is_named_first(calls: Calls) -> None:
    calls.site.create("t", 2, TOPIC_ID)
    assert commit(calls, topic("t", 1, 2, -1), topic("nowhere", 0)) == [
        ("t", [(2, 3), (-1, 3), (1, 0)]),
        ("nowhere", [(0, 3)]),
    ]


def test_nothing_to_commit_asks_nobody(calls: Calls) -> None:
    assert commit(calls, topic("nowhere", 0), generation_id=5, member_id="m") == [
        ("nowhere", [(0, 3)])
    ]
    assert commit(calls) == []


def test_a_refusal_of_all_stands_at_each_partition(calls: Calls) -> None:
    calls.site.create("t", 2, TOPIC_ID)
    assert commit(calls, topic("t", 0, 7), member_id="m", generation_id=5) == [
        ("t", [(7, 3), (0, 69)])
    ]
    assert commit(calls, topic("t", 0), member_id="m", generation_id=5, version=8) == [
        ("t", [(0, 22)])
    ]


def test_without_a_coordinator(calls_without_topic: Calls) -> None:
    calls = calls_without_topic
    calls.site.create("t", 1, TOPIC_ID)
    assert commit(calls, topic("t", 0)) == [("t", [(0, 16)])]


def test_the_group_may_be_empty_text(calls: Calls) -> None:
    calls.site.create("t", 1, TOPIC_ID)
    assert commit(calls, topic("t", 0), group_id="") == [("t", [(0, 0)])]
