"""What share consumers ask of the twin cluster: ShareGroupHeartbeat, ShareFetch, ShareAcknowledge.

Every member is assigned all partitions of its topics. Acquisitions end with their lock, with the
connection, and with the session. ``deliveries`` and ``taken`` keep what happened; ``intruders`` are
acknowledgements of records that their member never acquired.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.client_twin.cluster import TwinBroker, TwinPartition
from tests.client_twin.loop import Connection, TwinLoop
from tests.client_twin.readers import ReaderCluster

from millstream.model.errors import ErrorCode
from millstream.model.topic import TopicId
from millstream.protocol.message import Request, Response
from millstream.protocol.messages.share_acknowledge import (
    LeaderIdAndEpoch as AcknowledgeLeader,
)
from millstream.protocol.messages.share_acknowledge import (
    NodeEndpoint as AcknowledgeEndpoint,
)
from millstream.protocol.messages.share_acknowledge import (
    PartitionData as AcknowledgeRow,
)
from millstream.protocol.messages.share_acknowledge import (
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)
from millstream.protocol.messages.share_fetch import (
    AcquiredRecords,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from millstream.protocol.messages.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)
from millstream.records.batch import iter_batches

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
LOOK_MS = 20.0
Key = tuple[TopicId, int]


@dataclass
class Member:
    epoch: int
    topics: list[str] = field(default_factory=list)


@dataclass
class ShareSession:
    """The session of one member with one broker."""

    epoch: int
    connection: Connection
    partitions: set[Key] = field(default_factory=set)


@dataclass
class Acquisition:
    member_id: str
    node_id: int
    until_ms: float


@dataclass
class ShareRow:
    """One share partition."""

    acquired: dict[int, Acquisition] = field(default_factory=dict)
    done: dict[int, str] = field(default_factory=dict)
    """Offset to accepted, rejected, gap or archived."""
    counts: Counter[int] = field(default_factory=Counter)


class ShareCluster(ReaderCluster):
    """A twin cluster with one share group."""

    def __init__(self, loop: TwinLoop, broker_ids: Sequence[int] = (1,)) -> None:
        super().__init__(loop, broker_ids)
        self.lock_ms = 30_000
        self.interval_ms = 1_000
        self.delivery_limit = 1_000_000
        self.members: dict[str, Member] = {}
        self.share_sessions: dict[tuple[int, str], ShareSession] = {}
        self.rows: dict[Key, ShareRow] = {}
        self.missing: set[tuple[Key, int]] = set()
        """Offsets whose records were compacted away."""
        self.acquired_by: dict[tuple[Key, int], set[str]] = {}
        self.intruders: list[tuple[str, Key, int]] = []
        self.heartbeats: list[ShareGroupHeartbeatRequest] = []
        self.share_requests: list[ShareFetchRequest | ShareAcknowledgeRequest] = []
        self.handlers |= {
            ShareGroupHeartbeatRequest: self._share_heartbeat,
            ShareFetchRequest: self._share_fetch,
            ShareAcknowledgeRequest: self._share_acknowledge,
        }

    # --- what tests look at ----------------------------------------------------------------------

    def row(self, name: str, partition: int) -> ShareRow:
        return self.rows.setdefault((self.topics[name].topic_id, partition), ShareRow())

    def outcomes(self, name: str, partition: int, kind: str) -> list[int]:
        done = self.row(name, partition).done
        return sorted(offset for offset, each in done.items() if each == kind)

    def acquired(self, name: str, partition: int) -> list[int]:
        self._expire()
        return sorted(self.row(name, partition).acquired)

    # --- membership ------------------------------------------------------------------------------

    def _share_heartbeat(self, broker: TwinBroker, request: Request) -> Response:
        assert isinstance(request, ShareGroupHeartbeatRequest)
        self.heartbeats.append(request)

        def refused(error: ErrorCode) -> Response:
            return ShareGroupHeartbeatResponse(
                error_code=error.code, member_epoch=0, heartbeat_interval_ms=0
            )

        if broker.node_id != self.coordinator_id:
            return refused(ErrorCode.NOT_COORDINATOR)
        member = self.members.get(request.member_id)
        if request.member_epoch == -1:
            self.members.pop(request.member_id, None)
            return ShareGroupHeartbeatResponse(
                error_code=0, member_epoch=-1, heartbeat_interval_ms=0
            )
        if request.member_epoch == 0:
            if request.subscribed_topic_names is None:
                return refused(ErrorCode.INVALID_REQUEST)
            member = self.members.setdefault(request.member_id, Member(0))
        if member is None:
            return refused(ErrorCode.UNKNOWN_MEMBER_ID)
        if request.member_epoch not in (0, member.epoch):
            return refused(ErrorCode.FENCED_MEMBER_EPOCH)
        changed = request.member_epoch == 0
        if request.subscribed_topic_names is not None:
            changed = changed or member.topics != request.subscribed_topic_names
            member.topics = request.subscribed_topic_names
        if changed:
            member.epoch += 1
        assignment = Assignment(
            topic_partitions=[
                TopicPartitions(
                    topic_id=self.topics[name].topic_id,
                    partitions=list(range(len(self.topics[name].partitions))),
                )
                for name in member.topics
                if name in self.topics
            ]
        )
        return ShareGroupHeartbeatResponse(
            error_code=0,
            member_id=request.member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=self.interval_ms,
            assignment=assignment,
        )

    # --- sessions --------------------------------------------------------------------------------

    def _check_session(
        self, broker: TwinBroker, member_id: str, epoch: int, *, may_open: bool
    ) -> tuple[ErrorCode, ShareSession | None]:
        assert self._asking is not None
        connection = self._asking[0]
        key = (broker.node_id, member_id)
        session = self.share_sessions.get(key)
        if epoch == 0:
            if not may_open:
                return ErrorCode.INVALID_SHARE_SESSION_EPOCH, None
            session = self.share_sessions[key] = ShareSession(1, connection)
            return ErrorCode.NONE, session
        if session is None or session.connection is not connection:
            return ErrorCode.SHARE_SESSION_NOT_FOUND, None
        if epoch == -1:
            return ErrorCode.NONE, session
        if epoch != session.epoch:
            return ErrorCode.INVALID_SHARE_SESSION_EPOCH, None
        session.epoch += 1
        return ErrorCode.NONE, session

    def _expire(self) -> None:
        """End acquisitions whose lock, connection or leader is over."""
        now = self.loop.now_ms()
        for key, session in list(self.share_sessions.items()):
            if session.connection.is_closed or session.connection.state.get("cut"):
                del self.share_sessions[key]
                self._release(*key)
        for (topic_id, partition), row in self.rows.items():
            topic = self.by_id(topic_id)
            leader = -1 if topic is None else topic.partitions[partition].leader
            for offset, each in list(row.acquired.items()):
                if each.until_ms <= now or each.node_id != leader:
                    self._give_up(row, offset)

    def _release(self, node_id: int, member_id: str) -> None:
        for row in self.rows.values():
            for offset, each in list(row.acquired.items()):
                if (each.node_id, each.member_id) == (node_id, member_id):
                    self._give_up(row, offset)

    def _give_up(self, row: ShareRow, offset: int) -> None:
        del row.acquired[offset]
        if row.counts[offset] >= self.delivery_limit:
            row.done[offset] = "archived"

    # --- ShareFetch ------------------------------------------------------------------------------

    def _share_fetch(self, broker: TwinBroker, request: Request) -> Response | None:
        assert isinstance(request, ShareFetchRequest)
        assert self._asking is not None
        self._expire()
        self.share_requests.append(request)
        member_id = request.member_id or ""
        epoch = request.share_session_epoch
        error, session = self._check_session(broker, member_id, epoch, may_open=True)
        carries = any(row.acknowledgement_batches for t in request.topics for row in t.partitions)
        if epoch == 0 and carries:
            error = ErrorCode.INVALID_REQUEST
        if session is None or error is not ErrorCode.NONE:
            return fetch_refused(error)
        rows: dict[Key, PartitionData] = {}
        for topic in request.topics:
            for asked in topic.partitions:
                key = (topic.topic_id, asked.partition_index)
                if asked.acknowledgement_batches:
                    code = self._acknowledge_row(
                        broker, member_id, key, asked.acknowledgement_batches
                    )
                    rows[key] = _row(key[1])
                    rows[key].acknowledge_error_code = code.code
                session.partitions.add(key)
        for forgotten in request.forgotten_topics_data:
            for index in forgotten.partitions:
                session.partitions.discard((forgotten.topic_id, index))
        connection, header = self._asking
        deadline = self.loop.now_ms() + request.max_wait_ms

        def attempt() -> None:
            self._expire()
            if connection.is_closed:
                return
            answer = self._acquire(broker, request, session, dict(rows))
            if answer is None and self.loop.now_ms() < deadline:
                self.loop.call_at(self.loop.now_ms() + LOOK_MS, attempt)
                return
            self.reply(connection, header, answer or self._answer(rows))

        delay = self.after(broker, connection, request)
        if delay is not None:
            self.loop.call_at(self.loop.now_ms() + delay, attempt)
        return None

    def _answer(self, rows: dict[Key, PartitionData]) -> ShareFetchResponse:
        topics: dict[TopicId, ShareFetchableTopicResponse] = {}
        for (topic_id, _), row in rows.items():
            topic = topics.setdefault(
                topic_id, ShareFetchableTopicResponse(topic_id=topic_id, partitions=[])
            )
            topic.partitions.append(row)
        return ShareFetchResponse(
            error_code=0,
            acquisition_lock_timeout_ms=self.lock_ms,
            responses=list(topics.values()),
            node_endpoints=[
                NodeEndpoint(node_id=each.node_id, host=each.address.host, port=each.address.port)
                for each in self.brokers.values()
            ],
        )

    def _acquire(
        self,
        broker: TwinBroker,
        request: ShareFetchRequest,
        session: ShareSession,
        rows: dict[Key, PartitionData],
    ) -> ShareFetchResponse | None:
        """Acquire what is there; None if there is nothing to tell."""
        found = False
        left = request.max_records
        for key in sorted(session.partitions):
            topic = self.by_id(key[0])
            row = rows.setdefault(key, _row(key[1]))
            if topic is None:
                row.error_code = ErrorCode.UNKNOWN_TOPIC_ID.code
                found = True
                continue
            partition = topic.partitions[key[1]]
            if partition.leader != broker.node_id:
                row.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER.code
                row.current_leader = LeaderIdAndEpoch(
                    leader_id=partition.leader, leader_epoch=partition.epoch
                )
                found = True
                continue
            whole = request.share_acquire_mode == 0
            offsets = self._take(broker, request.member_id or "", key, partition, left, whole=whole)
            left -= len(offsets)
            if offsets:
                found = True
                first, last = offsets[0], offsets[-1]
                row.records = b"".join(
                    data
                    for data in partition.batches
                    for batch in iter_batches(data)
                    if batch.next_offset > first and batch.base_offset <= last
                )
                row.acquired_records = [
                    AcquiredRecords(
                        first_offset=each,
                        last_offset=each,
                        delivery_count=self.rows[key].counts[each],
                    )
                    for each in offsets
                ]
        return self._answer(rows) if found else None

    def _take(
        self,
        broker: TwinBroker,
        member_id: str,
        key: Key,
        partition: TwinPartition,
        most: int,
        *,
        whole: bool,
    ) -> list[int]:
        row = self.rows.setdefault(key, ShareRow())
        offsets: list[int] = []
        for data in partition.batches:
            for batch in iter_batches(data):
                if len(offsets) >= most:
                    return offsets
                for offset in range(batch.base_offset, batch.next_offset):
                    if offset in row.done or offset in row.acquired:
                        continue
                    if not whole and len(offsets) >= most:
                        return offsets
                    row.counts[offset] += 1
                    until = self.loop.now_ms() + self.lock_ms
                    row.acquired[offset] = Acquisition(member_id, broker.node_id, until)
                    self.acquired_by.setdefault((key, offset), set()).add(member_id)
                    offsets.append(offset)
        return offsets

    # --- ShareAcknowledge ------------------------------------------------------------------------

    def _share_acknowledge(self, broker: TwinBroker, request: Request) -> Response | None:
        assert isinstance(request, ShareAcknowledgeRequest)
        self._expire()
        self.share_requests.append(request)
        member_id = request.member_id or ""
        epoch = request.share_session_epoch
        error, session = self._check_session(broker, member_id, epoch, may_open=False)
        renews = any(
            RENEW in batch.acknowledge_types
            for topic in request.topics
            for row in topic.partitions
            for batch in row.acknowledgement_batches
        )
        if renews != request.is_renew_ack:
            error = ErrorCode.INVALID_REQUEST
        if session is None or error is not ErrorCode.NONE:
            return acknowledge_refused(error)
        topics = []
        for topic in request.topics:
            rows = []
            for asked in topic.partitions:
                key = (topic.topic_id, asked.partition_index)
                code = self._acknowledge_row(broker, member_id, key, asked.acknowledgement_batches)
                found = self.by_id(key[0])
                leader = TwinPartition(-1, -1) if found is None else found.partitions[key[1]]
                rows.append(
                    AcknowledgeRow(
                        partition_index=key[1],
                        error_code=code.code,
                        current_leader=AcknowledgeLeader(
                            leader_id=leader.leader, leader_epoch=leader.epoch
                        ),
                    )
                )
            topics.append(ShareAcknowledgeTopicResponse(topic_id=topic.topic_id, partitions=rows))
        if epoch == -1:
            self.share_sessions.pop((broker.node_id, member_id), None)
            self._release(broker.node_id, member_id)
        return ShareAcknowledgeResponse(
            error_code=0,
            acquisition_lock_timeout_ms=self.lock_ms,
            responses=topics,
            node_endpoints=[
                AcknowledgeEndpoint(
                    node_id=each.node_id, host=each.address.host, port=each.address.port
                )
                for each in self.brokers.values()
            ],
        )

    def _acknowledge_row(
        self, broker: TwinBroker, member_id: str, key: Key, batches: Sequence[object]
    ) -> ErrorCode:
        topic = self.by_id(key[0])
        if topic is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        if topic.partitions[key[1]].leader != broker.node_id:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        row = self.rows.setdefault(key, ShareRow())
        kinds = _kinds(batches)
        for offset in kinds:
            if member_id not in self.acquired_by.get((key, offset), ()):
                self.intruders.append((member_id, key, offset))
        for offset in kinds:
            held = row.acquired.get(offset)
            if held is None or (held.member_id, held.node_id) != (member_id, broker.node_id):
                return ErrorCode.INVALID_RECORD_STATE
        for offset, kind in kinds.items():
            if kind == RENEW:
                row.acquired[offset].until_ms = self.loop.now_ms() + self.lock_ms
            elif kind == RELEASE:
                self._give_up(row, offset)
            else:
                del row.acquired[offset]
                row.done[offset] = {GAP: "gap", ACCEPT: "accepted", REJECT: "rejected"}[kind]
        return ErrorCode.NONE


def fetch_refused(error: ErrorCode) -> ShareFetchResponse:
    return ShareFetchResponse(
        error_code=error.code, acquisition_lock_timeout_ms=0, responses=[], node_endpoints=[]
    )


def acknowledge_refused(error: ErrorCode) -> ShareAcknowledgeResponse:
    return ShareAcknowledgeResponse(error_code=error.code, responses=[], node_endpoints=[])


def _kinds(batches: Sequence[object]) -> dict[int, int]:
    """Return the type of each offset of batches, which are in order and do not overlap."""
    kinds: dict[int, int] = {}
    last = -1
    for batch in batches:
        first, end = batch.first_offset, batch.last_offset  # type: ignore[attr-defined]
        types = batch.acknowledge_types  # type: ignore[attr-defined]
        assert first > last
        assert len(types) in (1, end - first + 1)
        for index, offset in enumerate(range(first, end + 1)):
            kinds[offset] = types[0] if len(types) == 1 else types[index]
        last = end
    return kinds


def _row(partition: int) -> PartitionData:
    return PartitionData(
        partition_index=partition,
        error_code=0,
        acknowledge_error_code=0,
        current_leader=LeaderIdAndEpoch(leader_id=-1, leader_epoch=-1),
        records=b"",
        acquired_records=[],
    )
