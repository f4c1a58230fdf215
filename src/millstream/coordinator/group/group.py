"""The interface of a group, independent of its members' group protocol.

Committed offsets, listing and deletion depend on this alone. The classic protocol is one kind of
group (``classic_group``); those of KIP-848 and KIP-932 are others. Kafka: ``Group``.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from millstream.coordinator.result import CoordinatorRecord
from millstream.model.errors import ErrorCode
from millstream.model.topic import TopicId
from millstream.protocol.messages.list_groups import ListedGroup
from millstream.protocol.messages.offset_commit import OffsetCommitRequest
from millstream.protocol.messages.offset_fetch import OffsetFetchRequestGroup
from millstream.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest

if TYPE_CHECKING:
    from millstream.coordinator.group.offsets import CommittedOffset


class GroupType(Enum):
    """The value is the name in ListGroups (Kafka: ``GroupType``)."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"


class Group(Protocol):
    """One group, for offsets and administration."""

    @property
    def group_id(self) -> str:
        """The group's id."""

    @property
    def kind(self) -> GroupType:
        """The group protocol of its members."""

    @property
    def is_empty(self) -> bool:
        """True while the group has no members."""

    def is_subscribed_to(self, topic: str) -> bool:
        """True if a member subscribes to the topic, or if the subscription is unknown."""

    def validate_commit(self, request: OffsetCommitRequest, version: int) -> str | None:
        """Return the id of the member whose session a commit renews, None if it comes from no
        member.

        Raises KafkaError if the client may not commit: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID,
        ILLEGAL_GENERATION, STALE_MEMBER_EPOCH, REBALANCE_IN_PROGRESS, and UNSUPPORTED_VERSION for
        a ``version`` of OffsetCommit that the group's protocol does not know.
        """

    def refuses_commit(
        self, member_id: str, epoch: int, topic_id: TopicId, partition: int
    ) -> ErrorCode | None:
        """Return why a commit that is valid as a whole is refused for one partition; None if it is
        not.
        """

    def validate_transactional_commit(self, request: TxnOffsetCommitRequest) -> None:
        """Raise a KafkaError if the client may not commit in a transaction: as
        :meth:`validate_commit`, but that a request without a member, an instance and a generation
        is not checked, a rebalance does not matter, and STALE_MEMBER_EPOCH is ILLEGAL_GENERATION.
        """

    def validate_fetch(self, request: OffsetFetchRequestGroup) -> None:
        """Raise a KafkaError if the client may not fetch the group's offsets."""

    def validate_delete_offsets(self) -> None:
        """Raise NON_EMPTY_GROUP if the group has members and its offsets may not be deleted."""

    def validate_delete(self) -> None:
        """Raise NON_EMPTY_GROUP if the group may not be deleted."""

    def retention_counts_from(self) -> Callable[[CommittedOffset], int] | None:
        """Return from when the retention of an offset counts, in milliseconds of wall time; None
        while the group's offsets are kept.
        """

    def listed(self) -> ListedGroup:
        """Return the group for ListGroups."""

    def tombstones(self) -> list[CoordinatorRecord]:
        """Return the tombstones of the group, without those of its offsets."""
