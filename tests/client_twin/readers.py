"""What consumers ask of the twin cluster: Fetch, ListOffsets, epochs, and groups.

Groups are served by the broker's own pure coordinator, whose log moves with it; Fetch grants
sessions as a broker does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tests.client_twin.cluster import TwinBroker, TwinCluster, TwinPartition, TwinTopic
from tests.client_twin.loop import EPOCH_MS, Connection, TwinLoop

from millstream.coordinator.group.coordinator import GroupCoordinator
from millstream.coordinator.group.join_group import Caller
from millstream.coordinator.group.responses import join_refused, sync_refused
from millstream.coordinator.group.settings import GroupSettings
from millstream.coordinator.result import Instant, Result
from millstream.model.deferred import Deferred
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.topic import ZERO_TOPIC_ID, TopicId, TopicPartition
from millstream.protocol.headers import RequestHeader
from millstream.protocol.message import Request, Response
from millstream.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from millstream.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from millstream.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from millstream.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from millstream.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from millstream.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from millstream.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from millstream.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)
from millstream.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from millstream.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from millstream.records.batch import Batch, iter_batches
from millstream.records.builder import BatchOptions
from millstream.records.record import read_records
from millstream.records.rows import encode_rows

LONG_POLL_MS = 300.0


@dataclass
class Session:
    epoch: int = 0
    targets: dict[TopicPartition, tuple[TopicId, int, int]] = field(default_factory=dict)


@dataclass
class Commit:
    """One offset that the coordinator took."""

    member_id: str
    generation: int
    place: TopicPartition
    offset: int


class ReaderCluster(TwinCluster):
    """A twin cluster that serves consumers too."""

    def __init__(self, loop: TwinLoop, broker_ids: Sequence[int] = (1,)) -> None:
        super().__init__(loop, broker_ids)
        self.group_settings = GroupSettings(
            initial_rebalance_delay_ms=300, min_session_timeout_ms=1
        )
        self.group_log: list[tuple[bytes, bytes | None]] = []
        self.coordinator_id = broker_ids[0]
        self.coordinator = GroupCoordinator(self.group_settings)
        self.commits: list[Commit] = []
        self.syncs: list[SyncGroupRequest] = []
        self.grants_sessions = True
        self.sessions: dict[tuple[int, int], Session] = {}
        self.fetches: list[FetchRequest] = []
        self._session_ids = 0
        self._member_ids = 0
        self._asking: tuple[Connection, RequestHeader] | None = None
        self._tick_at_ms = float("inf")
        self.handlers |= {
            FindCoordinatorRequest: self._find_coordinator,
            FetchRequest: self._fetch,
            ListOffsetsRequest: self._list_offsets,
            OffsetForLeaderEpochRequest: self._epochs,
            JoinGroupRequest: self._join,
            SyncGroupRequest: self._sync,
            HeartbeatRequest: self._heartbeat,
            LeaveGroupRequest: self._leave,
            OffsetCommitRequest: self._commit,
            OffsetFetchRequest: self._offset_fetch,
        }

    # --- what tests do ---------------------------------------------------------------------------

    def fill(self, name: str, partition: int, count: int, *, value_size: int = 10) -> None:
        """Append records; each value begins with its offset as text."""
        row = self.topics[name].partitions[partition]
        first = row.end_offset
        values = [f"{first + index}".ljust(value_size).encode() for index in range(count)]
        times = [EPOCH_MS + (first + index) * 10 for index in range(count)]
        self.append(row, bytes(encode_rows(times, [None] * count, values, options=BatchOptions())))

    def append(self, row: TwinPartition, data: bytes) -> None:
        batch = next(iter_batches(bytearray(data)))
        batch.assign(base_offset=row.end_offset, leader_epoch=row.epoch)
        row.batches.append(bytes(batch.buffer))
        row.end_offset = batch.next_offset

    def truncate(self, name: str, partition: int, offset: int) -> None:
        """Cut a log as an unclean leader does; ``offset`` begins a batch."""
        row = self.topics[name].partitions[partition]
        row.batches = [data for data in row.batches if Batch(memoryview(data)).base_offset < offset]
        row.end_offset = offset

    def drop_before(self, name: str, partition: int, offset: int) -> None:
        """Delete the oldest batches, as retention does."""
        row = self.topics[name].partitions[partition]
        row.batches = [d for d in row.batches if Batch(memoryview(d)).base_offset >= offset]

    def move_coordinator(self, node_id: int) -> None:
        """Give the groups to another broker, which loads them from the log."""
        now = self._now()
        self._carry_out(self.coordinator.on_unloaded())
        self.coordinator = GroupCoordinator(self.group_settings)
        for index, (key, value) in enumerate(self.group_log):
            record = self.coordinator.decode(key, value)
            assert record is not None
            self.coordinator.replay(record, record_offset=index)
        self.coordinator_id = node_id
        self._carry_out(self.coordinator.on_loaded(now))

    def serve(
        self, broker: TwinBroker, connection: Connection, header: RequestHeader, request: Request
    ) -> None:
        """Answer in the order of the requests, as brokers do."""
        if connection.state.get("silent"):
            return
        self._asking = connection, header
        connection.state.setdefault("order", deque()).append(header.correlation_id)
        super().serve(broker, connection, header, request)

    def reply(
        self, connection: Connection, header: RequestHeader, response: Response, delay_ms: float = 0
    ) -> None:
        ready = connection.state.setdefault("ready", {})
        ready[header.correlation_id] = (header, response, delay_ms)
        order = connection.state["order"]
        while order and order[0] in ready:
            super().reply(connection, *ready.pop(order.popleft()))

    # --- groups ----------------------------------------------------------------------------------

    def _now(self) -> Instant:
        return Instant(self.loop.wall_clock_ms(), self.loop.now_ms())

    def _carry_out(self, result: Result[Response] | Result[None]) -> None:
        for record in result.records:
            key, value = record.encode()
            stored = self.coordinator.decode(key, value)
            assert stored is not None
            if result.replay:
                self.coordinator.replay(stored, record_offset=len(self.group_log))
            self.group_log.append((key, value))
        for answer in result.answers:
            answer.send()
        self._tick()

    def _tick(self) -> None:
        when = self.coordinator.next_deadline_ms
        if when is None or when >= self._tick_at_ms:
            return
        self._tick_at_ms = when

        def expire() -> None:
            self._tick_at_ms = float("inf")
            self._carry_out(self.coordinator.expire(self._now()))

        self.loop.call_at(max(when, self.loop.now_ms()), expire)

    def _later(self, broker: TwinBroker, request: Request, reply: Deferred[Response]) -> None:
        """Answer when the coordinator does."""
        assert self._asking is not None
        connection, header = self._asking

        def send(done: Deferred[Response]) -> None:
            delay_ms = self.after(broker, connection, request)
            if delay_ms is not None:
                self.reply(connection, header, done.result(), delay_ms)

        reply.on_done(send)

    def _is_here(self, broker: TwinBroker) -> bool:
        return broker.node_id == self.coordinator_id

    def _join(self, broker: TwinBroker, request: Request) -> Response | None:
        assert isinstance(request, JoinGroupRequest)
        assert self._asking is not None
        if not self._is_here(broker):
            return join_refused(ErrorCode.NOT_COORDINATOR, request.member_id)
        version = self._asking[1].version
        self._member_ids += 1
        reply: Deferred[JoinGroupResponse] = Deferred()
        caller = Caller("client", "/10.0.0.1", version)
        try:
            result = self.coordinator.join_group(
                request, caller, f"m-{self._member_ids}", reply, self._now()
            )
        except KafkaError as error:
            return join_refused(error.error, request.member_id)
        self._later(broker, request, reply)  # type: ignore[arg-type]
        if result.response is not None and not reply.done:
            reply.complete(result.response)
        self._carry_out(result)  # type: ignore[arg-type]
        return None

    def _sync(self, broker: TwinBroker, request: Request) -> Response | None:
        assert isinstance(request, SyncGroupRequest)
        if not self._is_here(broker):
            return sync_refused(ErrorCode.NOT_COORDINATOR)
        reply: Deferred[SyncGroupResponse] = Deferred()
        try:
            result = self.coordinator.sync_group(request, reply, self._now())
        except KafkaError as error:
            return sync_refused(error.error)
        self.syncs.append(request)
        self._later(broker, request, reply)  # type: ignore[arg-type]
        if result.response is not None and not reply.done:
            reply.complete(result.response)
        self._carry_out(result)  # type: ignore[arg-type]
        return None

    def _run(self, broker: TwinBroker, operation: Callable[[], Result[Response]]) -> Response:
        if not self._is_here(broker):
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        result = operation()
        self._carry_out(result)
        assert result.response is not None
        return result.response

    def _heartbeat(self, broker: TwinBroker, request: Request) -> Response:
        assert isinstance(request, HeartbeatRequest)
        try:
            return self._run(broker, lambda: self.coordinator.heartbeat(request, self._now()))  # type: ignore[arg-type,return-value]
        except KafkaError as error:
            return HeartbeatResponse(error_code=error.error.code)

    def _leave(self, broker: TwinBroker, request: Request) -> Response:
        assert isinstance(request, LeaveGroupRequest)
        try:
            return self._run(broker, lambda: self.coordinator.leave_group(request, self._now()))  # type: ignore[arg-type,return-value]
        except KafkaError as error:
            return LeaveGroupResponse(error_code=error.error.code)

    def _commit(self, broker: TwinBroker, request: Request) -> Response:
        assert isinstance(request, OffsetCommitRequest)
        assert self._asking is not None
        version = self._asking[1].version
        try:
            response = self._run(
                broker,
                lambda: self.coordinator.commit_offsets(request, version, self._now()),  # type: ignore[arg-type,return-value]
            )
        except KafkaError as error:
            return OffsetCommitResponse(
                topics=[
                    OffsetCommitResponseTopic(
                        name=topic.name,
                        partitions=[
                            OffsetCommitResponsePartition(
                                partition_index=row.partition_index, error_code=error.error.code
                            )
                            for row in topic.partitions
                        ],
                    )
                    for topic in request.topics
                ]
            )
        self.commits += [
            Commit(
                request.member_id,
                request.generation_id_or_member_epoch,
                TopicPartition(topic.name, row.partition_index),
                row.committed_offset,
            )
            for topic in request.topics
            for row in topic.partitions
        ]
        return response

    def _offset_fetch(self, broker: TwinBroker, request: Request) -> Response:
        assert isinstance(request, OffsetFetchRequest)
        (group,) = request.groups
        try:
            response = self._run(
                broker,
                lambda: self.coordinator.fetch_offsets(group, require_stable=True),  # type: ignore[arg-type,return-value]
            )
        except KafkaError as error:
            refused = OffsetFetchResponseGroup(
                group_id=group.group_id, topics=[], error_code=error.error.code
            )
            return OffsetFetchResponse(groups=[refused])
        assert isinstance(response, OffsetFetchResponseGroup)
        return OffsetFetchResponse(groups=[response])

    def _find_coordinator(self, broker: TwinBroker, request: Request) -> Response:
        assert isinstance(request, FindCoordinatorRequest)
        chosen = self.brokers[self.coordinator_id]
        return FindCoordinatorResponse(
            coordinators=[
                Coordinator(
                    key=key,
                    node_id=chosen.node_id,
                    host=chosen.address.host,
                    port=chosen.address.port,
                    error_code=0,
                    error_message=None,
                )
                for key in request.coordinator_keys
            ]
        )

    # --- offsets ---------------------------------------------------------------------------------

    def _list_offsets(self, broker: TwinBroker, request: Request) -> Response:
        assert isinstance(request, ListOffsetsRequest)
        topics = []
        for asked in request.topics:
            topic = self.topics.get(asked.name)
            rows = []
            for each in asked.partitions:
                error, row = self._led(broker, topic, each.partition_index)
                answer = ListOffsetsPartitionResponse(
                    partition_index=each.partition_index, error_code=error.code
                )
                if row is not None:
                    answer.offset, answer.timestamp = _offset_at(row, each.timestamp)
                    answer.leader_epoch = row.epoch
                rows.append(answer)
            topics.append(ListOffsetsTopicResponse(name=asked.name, partitions=rows))
        return ListOffsetsResponse(topics=topics)

    def _epochs(self, broker: TwinBroker, request: Request) -> Response:
        assert isinstance(request, OffsetForLeaderEpochRequest)
        topics = []
        for asked in request.topics:
            topic = self.topics.get(asked.topic)
            rows = []
            for each in asked.partitions:
                error, row = self._led(broker, topic, each.partition)
                answer = EpochEndOffset(error_code=error.code, partition=each.partition)
                if row is not None:
                    answer.leader_epoch, answer.end_offset = _end_of_epoch(row, each.leader_epoch)
                rows.append(answer)
            topics.append(OffsetForLeaderTopicResult(topic=asked.topic, partitions=rows))
        return OffsetForLeaderEpochResponse(topics=topics)

    def _led(
        self, broker: TwinBroker, topic: TwinTopic | None, index: int
    ) -> tuple[ErrorCode, TwinPartition | None]:
        if topic is None or index >= len(topic.partitions):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None
        row = topic.partitions[index]
        if row.leader != broker.node_id:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER, None
        return ErrorCode.NONE, row

    # --- fetch -----------------------------------------------------------------------------------

    def _fetch(self, broker: TwinBroker, request: Request) -> Response | None:
        assert isinstance(request, FetchRequest)
        self.fetches.append(request)
        error, session = self._session(broker, request)
        if error is not ErrorCode.NONE:
            return FetchResponse(error_code=error.code, session_id=0, responses=[])
        assert session is not None
        session_id, targets = session
        reply: Deferred[Response] = Deferred()
        self._later(broker, request, reply)
        answer, filled = self._read(broker, request, targets)
        answer.session_id = session_id
        if filled:
            reply.complete(answer)
        else:
            # Instead of waiting for records: look once more, a little later.
            def again() -> None:
                late, _ = self._read(broker, request, targets)
                late.session_id = session_id
                reply.complete(late)

            wait = min(request.max_wait_ms, LONG_POLL_MS)
            self.loop.call_at(self.loop.now_ms() + wait, again)
        return None

    def _session(
        self, broker: TwinBroker, request: FetchRequest
    ) -> tuple[ErrorCode, tuple[int, Session] | None]:
        if request.session_epoch in (0, -1):
            self.sessions.pop((broker.node_id, request.session_id), None)
            session = Session(epoch=1)
            session_id = 0
            if request.session_epoch == 0 and self.grants_sessions:
                self._session_ids += 1
                session_id = self._session_ids
                self.sessions[broker.node_id, session_id] = session
        else:
            found = self.sessions.get((broker.node_id, request.session_id))
            if found is None:
                return ErrorCode.FETCH_SESSION_ID_NOT_FOUND, None
            if found.epoch != request.session_epoch:
                return ErrorCode.INVALID_FETCH_SESSION_EPOCH, None
            session, session_id = found, request.session_id
            session.epoch += 1
        for forgotten in request.forgotten_topics_data:
            name = self._name(forgotten.topic, forgotten.topic_id)
            for number in forgotten.partitions:
                session.targets.pop(TopicPartition(name, number), None)
        for topic in request.topics:
            name = self._name(topic.topic, topic.topic_id)
            for each in topic.partitions:
                session.targets[TopicPartition(name, each.partition)] = (
                    topic.topic_id,
                    each.fetch_offset,
                    each.current_leader_epoch,
                )
        return ErrorCode.NONE, (session_id, session)

    def _name(self, name: str, topic_id: TopicId) -> str:
        if topic_id == ZERO_TOPIC_ID:
            return name
        topic = self.by_id(topic_id)
        return f"?{topic_id.hex()}" if topic is None else topic.name

    def _read(
        self, broker: TwinBroker, request: FetchRequest, session: Session
    ) -> tuple[FetchResponse, bool]:
        responses = []
        filled = False
        endpoints: dict[int, NodeEndpoint] = {}
        for place, (topic_id, offset, epoch) in session.targets.items():
            row = self._read_one(broker, place, offset, epoch, endpoints)
            if row.error_code or row.records:
                filled = True
            responses.append(
                FetchableTopicResponse(topic=place.topic, topic_id=topic_id, partitions=[row])
            )
        return FetchResponse(responses=responses, node_endpoints=list(endpoints.values())), filled

    def _read_one(
        self,
        broker: TwinBroker,
        place: TopicPartition,
        offset: int,
        epoch: int,
        endpoints: dict[int, NodeEndpoint],
    ) -> PartitionData:
        error, row = self._led(broker, self.topics.get(place.topic), place.partition)
        answer = PartitionData(
            partition_index=place.partition,
            error_code=error.code,
            high_watermark=-1,
            aborted_transactions=None,
            records=None,
        )
        if row is None:
            if error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                known = self.topics[place.topic].partitions[place.partition]
                answer.current_leader = LeaderIdAndEpoch(
                    leader_id=known.leader, leader_epoch=known.epoch
                )
            return answer
        first = Batch(memoryview(row.batches[0])).base_offset if row.batches else row.end_offset
        answer.high_watermark = answer.last_stable_offset = row.end_offset
        answer.log_start_offset = first
        if 0 <= epoch < row.epoch:
            answer.error_code = ErrorCode.FENCED_LEADER_EPOCH.code
        elif epoch > row.epoch:
            answer.error_code = ErrorCode.UNKNOWN_LEADER_EPOCH.code
        elif not first <= offset <= row.end_offset:
            answer.error_code = ErrorCode.OFFSET_OUT_OF_RANGE.code
        else:
            wanted = [d for d in row.batches if Batch(memoryview(d)).next_offset > offset]
            answer.records = memoryview(b"".join(wanted[:3]))
        return answer


def _offset_at(row: TwinPartition, timestamp: int) -> tuple[int, int]:
    if timestamp == -1:
        return row.end_offset, -1
    if timestamp == -2:
        return (Batch(memoryview(row.batches[0])).base_offset if row.batches else 0), -1
    for data in row.batches:
        for record in read_records(Batch(memoryview(data))):
            if record.timestamp >= timestamp:
                return record.offset, record.timestamp
    return -1, -1


def _end_of_epoch(row: TwinPartition, epoch: int) -> tuple[int, int]:
    """The largest epoch at or below one, and where it ends."""
    found = -1
    for data in row.batches:
        batch = Batch(memoryview(data))
        if batch.partition_leader_epoch > epoch:
            return (found, batch.base_offset) if found >= 0 else (-1, -1)
        found = batch.partition_leader_epoch
    if epoch >= row.epoch:
        return row.epoch, row.end_offset
    return (found, row.end_offset) if found >= 0 else (-1, -1)
