from __future__ import annotations

import pytest
from tests.unit.handlers.group_calls import Calls
from tests.unit.handlers.test_offset_commit import TOPIC_ID, commit, topic

from millstream.model.topic import TopicId
from millstream.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)


@pytest.fixture
def committed(calls: Calls) -> Calls:
    calls.site.create("t", 2, TOPIC_ID)
    commit(calls, topic("t", 0))
    return calls


@pytest.mark.parametrize("version", range(1, 8))
def test_one_group_by_name(committed: Calls, version: int) -> None:
    request = OffsetFetchRequest(
        group_id="g", topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1])]
    )
    response = committed.call(request, version, OffsetFetchResponse)
    assert response.error_code == 0
    (answer,) = response.topics
    assert [(p.committed_offset, p.metadata, p.error_code) for p in answer.partitions] == [
        (10, "m", 0),
        (-1, "", 0),
    ]


@pytest.mark.parametrize("version", range(2, 8))
def test_null_means_all_topics(committed: Calls, version: int) -> None:
    request = OffsetFetchRequest(group_id="g", topics=None)
    response = committed.call(request, version, OffsetFetchResponse)
    assert [(t.name, [p.partition_index for p in t.partitions]) for t in response.topics] == [
        ("t", [0])
    ]


@pytest.mark.parametrize("version", [8, 9])
def test_several_groups(committed: Calls, version: int) -> None:
    wanted = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
    request = OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(group_id="g", topics=wanted),
            OffsetFetchRequestGroup(group_id="other", topics=None),
            OffsetFetchRequestGroup(group_id="g", topics=None),
        ]
    )
    groups = committed.call(request, version, OffsetFetchResponse).groups
    assert [group.group_id for group in groups] == ["g", "other", "g"]
    assert groups[0].topics[0].partitions[0].committed_offset == 10
    assert groups[1].topics == []
    assert groups[2].topics[0].name == "t"


def test_topic_ids(committed: Calls) -> None:
    unknown = TopicId(b"u" * 16)
    request = OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(
                group_id="g",
                topics=[
                    OffsetFetchRequestTopics(topic_id=unknown, partition_indexes=[0]),
                    OffsetFetchRequestTopics(topic_id=TOPIC_ID, partition_indexes=[0]),
                ],
            ),
            OffsetFetchRequestGroup(group_id="g", topics=None),
        ]
    )
    some, everything = committed.call(request, 10, OffsetFetchResponse).groups
    assert [
        (t.topic_id, t.partitions[0].committed_offset, t.partitions[0].error_code)
        for t in some.topics
    ] == [(TOPIC_ID, 10, 0), (unknown, -1, 100)]
    assert [(t.topic_id, t.partitions[0].committed_offset) for t in everything.topics] == [
        (TOPIC_ID, 10)
    ]


def test_topics_that_are_gone_are_left_out_of_all(committed: Calls) -> None:
    committed.site.metadata.remove("t")
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
    assert committed.call(request, 10, OffsetFetchResponse).groups[0].topics == []


def test_a_topic_made_anew_has_no_offsets(committed: Calls) -> None:
    committed.site.metadata.remove("t")
    committed.site.create("t", 2, TopicId(b"n" * 16))
    request = OffsetFetchRequest(
        group_id="g", topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
    )
    response = committed.call(request, 7, OffsetFetchResponse)
    assert response.topics[0].partitions[0].committed_offset == -1


@pytest.mark.parametrize(("version", "where"), [(1, "partition"), (2, "top"), (8, "group")])
def test_without_a_coordinator(calls_without_topic: Calls, version: int, where: str) -> None:
    request = OffsetFetchRequest(
        group_id="g", topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
    )
    if version == 8:
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
    response = calls_without_topic.call(request, version, OffsetFetchResponse)
    match where:
        case "partition":
            assert response.topics[0].partitions[0].error_code == 16
        case "top":
            assert (response.error_code, response.topics) == (16, [])
        case _:
            assert (response.groups[0].error_code, response.groups[0].topics) == (16, [])
