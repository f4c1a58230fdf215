"""Members of consumer groups for scenarios: joining, syncing, rebalancing."""

from __future__ import annotations

import struct
import time
from typing import Any

from tests.interop.differential.session import EVENTUALLY_S, Answer, Peer, Session


def subscription(*topics: str, user_data: bytes = b"") -> bytes:
    """Return the metadata of a consumer: version 1 of Kafka's ConsumerProtocolSubscription.

    Kafka 4.3 never answers a consumer whose metadata it cannot read, so scenarios send real ones.
    """
    names = b"".join(struct.pack(">h", len(each)) + each.encode() for each in topics)
    head = struct.pack(">hi", 1, len(topics)) + names
    return head + struct.pack(">i", len(user_data)) + user_data + struct.pack(">i", 0)


PROTOCOLS = (
    ("range", subscription("some", user_data=b"range")),
    ("roundrobin", subscription("some", user_data=b"rr")),
)
"""What a member offers unless told."""


class Member:
    """One member of a classic group, on a connection and with a client id of its own."""

    def __init__(
        self, s: Session, group: str, label: str = "a", *, instance: str | None = None
    ) -> None:
        self.s = s
        self.group = group
        self.label = label
        self.instance = instance
        self.peer: Peer = s.peer(label, client_id=f"client-{label}")
        self.member_id = ""
        self.generation = -1
        self.protocol_type = "consumer"
        self.protocols: Any = PROTOCOLS
        self.session_timeout_ms = 30_000
        self.rebalance_timeout_ms = 20_000

    def join_fields(self, **more: Any) -> dict[str, Any]:
        """Return the fields of this member's JoinGroup request."""
        fields: dict[str, Any] = {
            "group_id": self.group,
            "session_timeout_ms": self.session_timeout_ms,
            "rebalance_timeout_ms": self.rebalance_timeout_ms,
            "member_id": self.member_id,
            "group_instance_id": self.instance,
            "protocol_type": self.protocol_type,
            "protocols": [{"name": name, "metadata": data} for name, data in self.protocols],
        }
        return fields | more

    def take(self, answer: Answer) -> Answer:
        """Remember the identity that a JoinGroup answer gives."""
        if answer.get("error_code") in (0, 79):
            self.member_id = answer["member_id"]
            self.generation = answer["generation_id"]
        return answer

    def join(self, version: int = 2, **more: Any) -> Answer:
        """Join and record the answer."""
        return self.take(self.peer.call("JoinGroup", version, **self.join_fields(**more)))

    def post_join(self, version: int = 2, **more: Any) -> None:
        """Ask to join; the answer comes with ``joined``."""
        self.peer.post("JoinGroup", version, **self.join_fields(**more))

    def joined(self) -> Answer:
        """Wait for the answer to ``post_join`` and record it."""
        return self.take(self.peer.receive())

    def quiet_join(self, version: int = 2, **more: Any) -> Answer:
        """Join without recording; asks again when the broker wants the member id first."""
        answer = self.take(self.peer.quiet("JoinGroup", version, **self.join_fields(**more)))
        if answer["error_code"] == 79:
            answer = self.take(self.peer.quiet("JoinGroup", version, **self.join_fields(**more)))
        assert answer["error_code"] == 0, answer
        return answer

    def identity(self, **more: Any) -> dict[str, Any]:
        """Return the fields that say who this member is."""
        fields = {
            "group_id": self.group,
            "generation_id": self.generation,
            "member_id": self.member_id,
            "group_instance_id": self.instance,
        }
        return fields | more

    def sync_fields(self, assignments: Any = (), **more: Any) -> dict[str, Any]:
        """Return the fields of a SyncGroup request; ``assignments`` are (member, bytes)."""
        shares = [
            {"member_id": member.member_id, "assignment": data} for member, data in assignments
        ]
        return self.identity(assignments=shares) | more

    def sync(self, assignments: Any = (), version: int = 2, **more: Any) -> Answer:
        """Sync and record the answer."""
        return self.peer.call("SyncGroup", version, **self.sync_fields(assignments, **more))

    def quiet_sync(self, assignments: Any = (), version: int = 3) -> Answer:
        """Sync without recording."""
        answer = self.peer.quiet("SyncGroup", version, **self.sync_fields(assignments))
        assert answer["error_code"] == 0, answer
        return answer

    def heartbeat(self, version: int = 3, **more: Any) -> Answer:
        """Send a heartbeat and record the answer."""
        return self.peer.call("Heartbeat", version, **self.identity(**more))

    def await_rebalance(self) -> None:
        """Send heartbeats quietly until the broker asks to join again."""
        self.await_heartbeat(27)

    def await_heartbeat(self, code: int) -> None:
        """Send heartbeats quietly until the answer has this error code."""
        deadline = time.monotonic() + EVENTUALLY_S
        while self.peer.quiet("Heartbeat", 3, **self.identity())["error_code"] != code:
            assert time.monotonic() < deadline, f"no heartbeat answered {code}"
            time.sleep(0.005)

    def commit_fields(
        self, version: int, topic: str, offset: int = 5, partition: int = 0, **more: Any
    ) -> dict[str, Any]:
        """Return the fields of an OffsetCommit request for one partition."""
        part = {
            "partition_index": partition,
            "committed_offset": offset,
            "committed_leader_epoch": -1,
            "committed_metadata": "note",
        }
        named = self.s.topic_ref(topic, by_id=version >= 10)
        return {
            "group_id": self.group,
            "generation_id_or_member_epoch": self.generation,
            "member_id": self.member_id,
            "group_instance_id": self.instance,
            "topics": [named | {"partitions": [part]}],
        } | more

    def commit(self, topic: str, version: int = 7, **more: Any) -> Answer:
        """Commit an offset and record the answer."""
        return self.peer.call("OffsetCommit", version, **self.commit_fields(version, topic, **more))


def stable_group(s: Session, group: str, label: str = "a", **more: Any) -> Member:
    """A group with one member that has its assignment."""
    member = Member(s, group, label, **more)
    member.quiet_join(5)
    member.quiet_sync([(member, b"share-a")])
    return member


def stable_pair(s: Session, group: str, **more: Any) -> tuple[Member, Member]:
    """A stable group of two members, the leader first."""
    leader = stable_group(s, group, "a", **more)
    follower = Member(s, group, "b")
    follower.peer.post("JoinGroup", 2, **follower.join_fields())
    leader.await_rebalance()
    leader.quiet_join(5)
    follower.take(follower.peer.quiet_receive())
    shares = [(leader, b"share-a"), (follower, b"share-b")]
    leader.quiet_sync(shares)
    follower.quiet_sync()
    return leader, follower


def empty_group(s: Session, group: str, topic: str | None = None) -> None:
    """A group without members, with a committed offset when a topic is given."""
    if topic is not None:
        simple_commit(s, group, topic)
        return
    member = stable_group(s, group)
    s.quiet("LeaveGroup", 1, group_id=group, member_id=member.member_id)


def simple_commit(s: Session, group: str, topic: str, offset: int = 5, partition: int = 0) -> None:
    """Commit an offset outside any generation, as a consumer with assigned partitions does."""
    member = Member(s, group, "main")
    fields = member.commit_fields(7, topic, offset, partition)
    answer = s.quiet("OffsetCommit", 7, **fields)
    assert answer["topics"][0]["partitions"][0]["error_code"] == 0, answer


def describe(s: Session, group: str, version: int = 5) -> None:
    """Record what the group is now."""
    s.call("DescribeGroups", version, groups=[group])
