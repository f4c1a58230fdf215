"""A classic group: its members, its generation, and their invariants.

Kafka: ``ClassicGroup``. What a request does to a group is in ``rebalance``, ``join_group`` and
``member_requests``; this module has the state. Its invariants:

* ``leader_id`` is a member, or None when there are no members;
* ``static_members`` maps the instance id of each static member to its member id, and no other;
* ``protocol_support`` counts, per protocol, the members that support it, and ``metadata_bytes`` is
  the size of their metadata for all protocols;
* ``awaiting_join`` counts the members whose JoinGroup waits;
* in COMPLETING_REBALANCE and STABLE every member supports ``protocol_name``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from millstream.coordinator.group.group import GroupType
from millstream.coordinator.group.member import Member
from millstream.coordinator.group.partitioner import java_hash
from millstream.coordinator.group.records import group_tombstone
from millstream.coordinator.group.states import VALID_PREVIOUS_STATES, GroupState
from millstream.coordinator.group.subscription import CONSUMER_PROTOCOL_TYPE, subscribed_topics
from millstream.coordinator.result import CoordinatorRecord, Instant
from millstream.model.deferred import Deferred
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.topic import TopicId
from millstream.protocol.messages.coordinator_records import GroupMetadataValue
from millstream.protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember
from millstream.protocol.messages.join_group import JoinGroupResponse
from millstream.protocol.messages.list_groups import ListedGroup
from millstream.protocol.messages.offset_commit import OffsetCommitRequest
from millstream.protocol.messages.offset_fetch import OffsetFetchRequestGroup
from millstream.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest

if TYPE_CHECKING:
    from millstream.coordinator.group.offsets import CommittedOffset

NO_TIMESTAMP = -1
_JAVA_MAP_BUCKETS = 16


class ClassicGroup:
    """One group id's members and state (a ``Group``). ``state_timestamp_ms`` is wall time, -1 when
    unknown.
    """

    kind = GroupType.CLASSIC

    def __init__(self, group_id: str, *, state_timestamp_ms: int) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.previous_state: GroupState | None = None
        self.state_timestamp_ms = state_timestamp_ms
        self.generation_id = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}
        self.pending_join: set[str] = set()
        """Ids that were returned with MEMBER_ID_REQUIRED and have not been used to join yet."""
        self.pending_sync: set[str] = set()
        """Members of this generation that have not asked for their assignment yet."""
        self.awaiting_join = 0
        self.protocol_support: Counter[str] = Counter()
        self.metadata_bytes = 0
        self.subscribed_topics: frozenset[str] | None = None
        """None if unknown: another protocol type, or metadata that cannot be parsed."""
        self.new_member_added = False
        """True if a member joined during the initial rebalance, so that it may be delayed
        further.
        """
        self.initial_delay_ms = 0
        """The current delay of the initial rebalance, ..."""
        self.initial_remaining_ms = 0
        """... and by how much it may still be prolonged."""

    def transition_to(self, state: GroupState, now: Instant) -> None:
        """Move to another state."""
        assert self.state in VALID_PREVIOUS_STATES[state], f"{self.state} to {state}"
        self.previous_state, self.state = self.state, state
        self.state_timestamp_ms = now.wall_ms

    @property
    def is_consumer_group(self) -> bool:
        """True when the members are Kafka consumers rather than, say, Connect workers."""
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    @property
    def is_empty(self) -> bool:
        """True while the group has no members, including pending ones."""
        return self.state is GroupState.EMPTY

    def is_leader(self, member_id: str) -> bool:
        """True for the member that makes the assignment."""
        return self.leader_id == member_id

    def is_subscribed_to(self, topic: str) -> bool:
        """True if a member subscribes to the topic, or if the subscription is unknown."""
        if self.subscribed_topics is None:
            return self.is_consumer_group
        return topic in self.subscribed_topics

    def can_rebalance(self) -> bool:
        """True in the states from which a rebalance may start."""
        return self.state in VALID_PREVIOUS_STATES[GroupState.PREPARING_REBALANCE]

    def has_all_members_joined(self) -> bool:
        """True if the rebalance waits for no further member."""
        return len(self.members) == self.awaiting_join and not self.pending_join

    def rebalance_timeout_ms(self) -> int:
        """Return the longest rebalance timeout of the members, in milliseconds."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    # Members

    def add(self, member: Member, reply: Deferred[JoinGroupResponse] | None = None) -> None:
        """Add a member whose JoinGroup is parked with ``reply``; the first member is the leader."""
        if not self.members:
            self.protocol_type = member.protocol_type
        assert self.protocol_type == member.protocol_type, "one protocol type per group"
        if member.instance_id is not None:
            assert member.instance_id not in self.static_members, "one member per instance id"
            self.static_members[member.instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self._count_protocols(member)
        self.pending_join.discard(member.member_id)
        self.park_join(member, reply)

    def remove(self, member_id: str) -> None:
        """Remove a member, joined or pending; if it was the leader, another member becomes the
        leader.
        """
        member = self.members.pop(member_id, None)
        if member is not None:
            self._forget_protocols(member)
            self.park_join(member, None)
            if member.instance_id is not None:
                del self.static_members[member.instance_id]
        if self.is_leader(member_id):
            self.leader_id = next(iter(self.members), None)
        self.pending_join.discard(member_id)
        self.pending_sync.discard(member_id)

    def update_protocols(self, member: Member, protocols: dict[str, bytes]) -> None:
        """Replace the protocols of a member."""
        self._forget_protocols(member)
        member.protocols = protocols
        self._count_protocols(member)

    def park_join(self, member: Member, reply: Deferred[JoinGroupResponse] | None) -> None:
        """Park the member's JoinGroup with ``reply``; None if it does not wait any more."""
        self.awaiting_join += (reply is not None) - (member.awaiting_join is not None)
        member.awaiting_join = reply

    def replace_static(self, old: Member, member_id: str) -> Member:
        """Replace a static member by the new process with its instance id.

        The parked requests of the old one must have been answered.
        """
        assert old.instance_id is not None
        assert old.awaiting_join is None
        assert old.awaiting_sync is None
        new = Member(
            member_id=member_id,
            instance_id=old.instance_id,
            client_id=old.client_id,
            client_host=old.client_host,
            rebalance_timeout_ms=old.rebalance_timeout_ms,
            session_timeout_ms=old.session_timeout_ms,
            protocol_type=old.protocol_type,
            protocols=old.protocols,
            assignment=old.assignment,
        )
        del self.members[old.member_id]
        self.members[member_id] = new
        if self.is_leader(old.member_id):
            self.leader_id = member_id
        self.static_members[old.instance_id] = member_id
        return new

    def validate_member(self, member_id: str, instance_id: str | None) -> Member:
        """Return the member; raise UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID if another process uses
        its instance id now.
        """
        if instance_id is not None:
            current = self.static_members.get(instance_id)
            if current is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            if current != member_id:
                raise KafkaError(ErrorCode.FENCED_INSTANCE_ID)
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return member

    # Protocols

    def supports(self, protocol_type: str, protocols: Collection[str]) -> bool:
        """True if a member with this protocol type and these protocols may join."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type) and bool(protocols)
        size = len(self.members)
        return self.protocol_type == protocol_type and any(
            self.protocol_support[name] == size for name in protocols
        )

    def select_protocol(self) -> str:
        """Return the protocol that most members prefer among those that all of them support."""
        size = len(self.members)
        candidates = {name for name, count in self.protocol_support.items() if count == size}
        votes = Counter(member.vote(candidates) for member in self.members.values())
        most = max(votes.values())
        # Kafka takes the first in the order of its hash map, so a tie is resolved in the same way
        # here.
        return min((name for name, count in votes.items() if count == most), key=_java_map_bucket)

    def _count_protocols(self, member: Member) -> None:
        self.protocol_support.update(member.protocols.keys())
        self.metadata_bytes += member.metadata_bytes

    def _forget_protocols(self, member: Member) -> None:
        self.metadata_bytes -= member.metadata_bytes
        for name in member.protocols:
            self.protocol_support[name] -= 1
            if not self.protocol_support[name]:
                del self.protocol_support[name]

    # Generations

    def elect_leader_among_joined(self) -> bool:
        """Make sure that the leader is a member that has rejoined; return False if none has."""
        if self.leader_id is None:
            return False
        if self.members[self.leader_id].awaiting_join is not None:
            return True
        for member in self.members.values():
            if member.awaiting_join is not None:
                self.leader_id = member.member_id
                return True
        return False

    def start_next_generation(self, now: Instant) -> None:
        """Begin the next generation with the present members; EMPTY if there are none."""
        self.generation_id += 1
        if self.members:
            self.protocol_name = self.select_protocol()
            self.compute_subscribed_topics()
            self.transition_to(GroupState.COMPLETING_REBALANCE, now)
        else:
            self.protocol_name = None
            self.compute_subscribed_topics()
            self.transition_to(GroupState.EMPTY, now)
        self.pending_sync.clear()

    def compute_subscribed_topics(self) -> None:
        """Read the topics out of the members' metadata for the selected protocol."""
        if not self.is_consumer_group:
            self.subscribed_topics = None
        elif not self.members:
            self.subscribed_topics = frozenset()
        elif self.protocol_name is None:
            self.subscribed_topics = None
        else:
            name = self.protocol_name
            self.subscribed_topics = subscribed_topics(
                member.protocols[name] for member in self.members.values()
            )

    # The Group protocol, for offsets and administration

    def validate_commit(self, request: OffsetCommitRequest, version: int) -> str | None:
        """See :meth:`Group.validate_commit`."""
        generation_id = request.generation_id_or_member_epoch
        if generation_id < 0 and self.is_empty:
            return None  # an administrator, or a consumer that assigns its partitions itself
        if generation_id < 0 and not request.member_id and request.group_instance_id is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        member = self.validate_member(request.member_id, request.group_instance_id)
        if generation_id != self.generation_id:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        if self.state is GroupState.COMPLETING_REBALANCE:
            # The member has its generation but no assignment yet, so it has nothing to commit.
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        joined = self.state in (GroupState.STABLE, GroupState.PREPARING_REBALANCE)
        return member.member_id if joined else None

    def validate_transactional_commit(self, request: TxnOffsetCommitRequest) -> None:
        """See :meth:`Group.validate_transactional_commit`."""
        generation_id, member_id = request.generation_id, request.member_id
        if generation_id < 0 and (
            self.is_empty or (not member_id and request.group_instance_id is None)
        ):
            return
        self.validate_member(member_id, request.group_instance_id)
        if generation_id != self.generation_id:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)

    def refuses_commit(
        self, member_id: str, epoch: int, topic_id: TopicId, partition: int
    ) -> ErrorCode | None:
        """A commit of a generation is valid for every partition."""
        return None

    def validate_fetch(self, request: OffsetFetchRequestGroup) -> None:
        """Every client may fetch the offsets of a classic group."""

    def validate_delete_offsets(self) -> None:
        """See :meth:`Group.validate_delete_offsets`: the subscriptions of consumer groups are
        known.
        """
        if not self.is_empty and not self.is_consumer_group:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def validate_delete(self) -> None:
        """See :meth:`Group.validate_delete`."""
        if not self.is_empty:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def retention_counts_from(self) -> Callable[[CommittedOffset], int] | None:
        """See :meth:`Group.retention_counts_from`.

        For an empty group it counts from the time when it became empty; with members, only offsets
        of topics without a subscription expire, counted from the commit; for a group that only
        stores offsets it counts from the commit too (KIP-211, KIP-496).
        """
        if self.protocol_type is None:
            return _commit_time
        if self.is_empty:
            empty_since_ms = self.state_timestamp_ms
            return _commit_time if empty_since_ms == NO_TIMESTAMP else lambda _: empty_since_ms
        is_aware = self.is_consumer_group and self.subscribed_topics is not None
        return _commit_time if is_aware and self.state is GroupState.STABLE else None

    def listed(self) -> ListedGroup:
        """See :meth:`Group.listed`."""
        return ListedGroup(
            group_id=self.group_id,
            protocol_type=self.protocol_type or "",
            group_state=self.state.value,
            group_type=self.kind.value,
        )

    def describe(self) -> DescribedGroup:
        """Return the group for DescribeGroups: metadata and assignments of members only while it is
        stable.
        """
        protocol = self.protocol_name if self.state is GroupState.STABLE else None
        return DescribedGroup(
            error_code=ErrorCode.NONE.code,
            group_id=self.group_id,
            group_state=self.state.value,
            protocol_type=self.protocol_type or "",
            protocol_data=protocol or "",
            members=[
                DescribedGroupMember(
                    member_id=member.member_id,
                    group_instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    member_metadata=b"" if protocol is None else member.protocols[protocol],
                    member_assignment=member.assignment,
                )
                for member in self.members.values()
            ],
        )

    def tombstones(self) -> list[CoordinatorRecord]:
        """See :meth:`Group.tombstones`."""
        return [group_tombstone(self.group_id)]


def group_from_record(group_id: str, value: GroupMetadataValue) -> ClassicGroup:
    """Return the group that a record describes: STABLE with its members, or EMPTY."""
    group = ClassicGroup(group_id, state_timestamp_ms=value.current_state_timestamp)
    for stored in value.members:
        timeout_ms = stored.session_timeout
        if stored.rebalance_timeout != NO_TIMESTAMP:
            timeout_ms = stored.rebalance_timeout
        group.add(
            Member(
                member_id=stored.member_id,
                instance_id=stored.group_instance_id,
                client_id=stored.client_id,
                client_host=stored.client_host,
                rebalance_timeout_ms=timeout_ms,
                session_timeout_ms=stored.session_timeout,
                protocol_type=value.protocol_type,
                protocols={value.protocol or "": bytes(stored.subscription)},
                assignment=bytes(stored.assignment),
            )
        )
    group.state = GroupState.STABLE if group.members else GroupState.EMPTY
    group.generation_id = value.generation
    group.protocol_type = value.protocol_type or None
    group.protocol_name = value.protocol
    if value.leader in group.members:
        group.leader_id = value.leader
    group.compute_subscribed_topics()
    return group


def _commit_time(committed: CommittedOffset) -> int:
    return committed.commit_timestamp_ms


def _java_map_bucket(name: str) -> int:
    value = java_hash(name) & 0xFFFF_FFFF
    return (value ^ value >> 16) % _JAVA_MAP_BUCKETS
