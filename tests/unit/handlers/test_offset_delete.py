from __future__ import annotations

from tests.unit.handlers.group_calls import Calls
from tests.unit.handlers.test_offset_commit import TOPIC_ID, commit, topic

from millstream.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)


def delete(calls: Calls, group_id: str, wanted: dict[str, list[int]]) -> OffsetDeleteResponse:
    request = OffsetDeleteRequest(
        group_id=group_id,
        topics=[
            OffsetDeleteRequestTopic(
                name=name,
                partitions=[OffsetDeleteRequestPartition(partition_index=i) for i in partitions],
            )
            for name, partitions in wanted.items()
        ],
    )
    return calls.call(request, 0, OffsetDeleteResponse)


def test_what_exists_is_deleted_and_the_rest_named(calls: Calls) -> None:
    calls.site.create("t", 2, TOPIC_ID)
    commit(calls, topic("t", 0, 1))
    response = delete(calls, "g", {"nowhere": [3], "t": [0, 9]})
    assert response.error_code == 0
    assert {
        t.name: [(p.partition_index, p.error_code) for p in t.partitions] for t in response.topics
    } == {"nowhere": [(3, 3)], "t": [(9, 3), (0, 0)]}


def test_a_refusal_has_no_topics(calls: Calls) -> None:
    calls.site.create("t", 2, TOPIC_ID)
    for group_id, error in [("unknown", 69), ("", 24)]:
        response = delete(calls, group_id, {"t": [0], "nowhere": [1]})
        assert (response.error_code, response.topics) == (error, [])
