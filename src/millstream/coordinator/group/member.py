"""One member of a classic group (Kafka: ``ClassicGroupMember``)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from millstream.model.deferred import Deferred
from millstream.protocol.messages.join_group import JoinGroupRequestProtocol, JoinGroupResponse
from millstream.protocol.messages.sync_group import SyncGroupResponse

NO_ASSIGNMENT = b""


def protocols_by_name(protocols: Iterable[JoinGroupRequestProtocol]) -> dict[str, bytes]:
    """Return the metadata by protocol name, in the member's order of preference."""
    by_name: dict[str, bytes] = {}
    for protocol in protocols:
        by_name.setdefault(protocol.name, bytes(protocol.metadata))
    return by_name


@dataclass(slots=True, kw_only=True)
class Member:
    """A member of a group: a consumer, a Connect worker, ...

    ``instance_id`` is set for static members (KIP-345). ``awaiting_join`` and ``awaiting_sync`` are
    the replies of its parked requests. ``is_new`` until its first generation begins: it does not
    have its id yet, so it cannot send heartbeats.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: dict[str, bytes]
    assignment: bytes = NO_ASSIGNMENT
    awaiting_join: Deferred[JoinGroupResponse] | None = None
    awaiting_sync: Deferred[SyncGroupResponse] | None = None
    is_new: bool = False

    @property
    def is_static(self) -> bool:
        """True for a member that keeps its membership when it restarts."""
        return self.instance_id is not None

    @property
    def metadata_bytes(self) -> int:
        """Bytes of the metadata for all protocols."""
        return sum(map(len, self.protocols.values()))

    def matches(self, protocols: dict[str, bytes]) -> bool:
        """True when these are the member's protocols: same names, order and metadata."""
        return list(self.protocols.items()) == list(protocols.items())

    def vote(self, candidates: Collection[str]) -> str:
        """Return the first of the member's protocols among the candidates."""
        return next(name for name in self.protocols if name in candidates)

    def has_satisfied_heartbeat(self) -> bool:
        """True when the session cannot expire: a member that waits for a rebalance sends no
        heartbeats.
        """
        if self.is_new:
            return False
        return self.awaiting_join is not None or self.awaiting_sync is not None
