"""Offsets and administration serve any kind of group: one that is not classic stands in here."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.unit.coordinator.scene import Scene

from millstream.coordinator.group.group import Group, GroupType
from millstream.coordinator.group.offsets import CommittedOffset
from millstream.coordinator.group.records import group_tombstone
from millstream.coordinator.result import CoordinatorRecord
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.topic import TopicId
from millstream.protocol.messages.list_groups import ListedGroup
from millstream.protocol.messages.offset_commit import OffsetCommitRequest
from millstream.protocol.messages.offset_fetch import OffsetFetchRequestGroup

WEEK_MS = 7 * 24 * 3_600_000


class OtherGroup:
    """A group of members with epochs, as those of KIP-848 are."""

    kind = GroupType.CONSUMER

    def __init__(self) -> None:
        self.group_id = "g"
        self.is_empty = False
        self.epoch = 3
        self.lost = 9

    def is_subscribed_to(self, topic: str) -> bool:
        return topic == "read"

    def refuses_commit(
        self, member_id: str, epoch: int, topic_id: TopicId, partition: int
    ) -> ErrorCode | None:
        return ErrorCode.STALE_MEMBER_EPOCH if partition == self.lost else None

    def validate_commit(self, request: OffsetCommitRequest, version: int) -> str | None:
        if request.generation_id_or_member_epoch != self.epoch:
            raise KafkaError(ErrorCode.STALE_MEMBER_EPOCH)
        return "m"

    def validate_fetch(self, request: OffsetFetchRequestGroup) -> None:
        if request.member_epoch not in (-1, self.epoch):
            raise KafkaError(ErrorCode.STALE_MEMBER_EPOCH)

    def validate_delete_offsets(self) -> None:
        pass

    def validate_delete(self) -> None:
        if not self.is_empty:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def retention_counts_from(self) -> Callable[[CommittedOffset], int]:
        return lambda committed: committed.commit_timestamp_ms

    def listed(self) -> ListedGroup:
        return ListedGroup(
            group_id="g", protocol_type="consumer", group_state="Reconciling", group_type="consumer"
        )

    def tombstones(self) -> list[CoordinatorRecord]:
        return [group_tombstone(self.group_id)]


@pytest.fixture
def group() -> OtherGroup:
    return OtherGroup()


@pytest.fixture
def scene(group: OtherGroup) -> Scene:
    scene = Scene()
    of_any_kind: Group = group
    scene.coordinator.groups.put(of_any_kind)
    return scene


def test_the_group_validates_commits(scene: Scene) -> None:
    stale = scene.commit_error({("t", 0): 5}, generation_id=2)
    assert ErrorCode.of(stale) is ErrorCode.STALE_MEMBER_EPOCH
    scene.commit({("t", 0): 5}, generation_id=3)
    assert scene.offsets() == {("t", 0): 5}


def test_the_group_validates_each_partition_of_a_commit(scene: Scene) -> None:
    answer = scene.commit({("t", 0): 5, ("u", 9): 6}, generation_id=3)
    errors = [topic.partitions[0].error_code for topic in answer.topics]
    assert errors == [0, ErrorCode.STALE_MEMBER_EPOCH.code]
    assert scene.offsets() == {("t", 0): 5}


def test_the_group_validates_offset_fetches(scene: Scene) -> None:
    scene.commit({("t", 0): 5}, generation_id=3)
    request = OffsetFetchRequestGroup(group_id="g", topics=None, member_id="m", member_epoch=2)
    with pytest.raises(KafkaError) as refused:
        scene.coordinator.fetch_offsets(request, require_stable=False)
    assert refused.value.error is ErrorCode.STALE_MEMBER_EPOCH


def test_offsets_of_topics_that_are_read_stay(scene: Scene) -> None:
    scene.commit({("t", 0): 5, ("read", 0): 6}, generation_id=3)
    answered = scene.delete_offsets({"t": [0], "read": [0]})
    errors = [topic.partitions[0].error_code for topic in answered.topics]
    assert errors == [0, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC.code]
    scene.commit({("t", 0): 5}, generation_id=3)
    scene.advance(WEEK_MS)
    scene.carry_out(scene.coordinator.expire_offsets(scene.now))
    assert scene.offsets() == {("read", 0): 6}


def test_the_group_says_whether_it_may_be_deleted(scene: Scene, group: OtherGroup) -> None:
    scene.commit({("t", 0): 5}, generation_id=3)
    deletion = lambda: scene.coordinator.delete_group("g").response  # noqa: E731
    with pytest.raises(KafkaError) as refused:
        deletion()
    assert refused.value.error is ErrorCode.NON_EMPTY_GROUP
    group.is_empty = True
    scene.carry_out(scene.coordinator.delete_group("g"))
    assert len(scene.coordinator.groups) == 0
    assert scene.offsets() == {}


def test_the_group_is_listed_by_its_type_and_is_no_classic_group(scene: Scene) -> None:
    listed = scene.coordinator.list_groups(states=["reconciling"], types=["consumer"]).response
    assert listed is not None
    assert [each.group_id for each in listed] == ["g"]
    assert scene.coordinator.list_groups(states=[], types=["classic"]).response == []
    described = scene.coordinator.describe_group("g", 6).response
    assert described is not None
    assert described.error_code == ErrorCode.GROUP_ID_NOT_FOUND.code
    assert described.group_state == "Dead"
    assert scene.join().result().error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL.code
