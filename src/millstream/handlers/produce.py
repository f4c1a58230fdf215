"""Produce (key 0), versions 3 to 13; 0 to 2 are advertised and refused.

=======  ====================================================================================
version  what it brings
=======  ====================================================================================
0–2      message formats 0 and 1: refused; advertised because librdkafka up to 2.11.0 stops
         compressing when the range does not begin at 0 (KAFKA-18659)
3        record batches v2, transactional id
5        log start offset in the answer
7        zstd (KIP-110)
8        record errors and a message (KIP-467)
9        flexible
10       the current leader with a refusal (KIP-951)
12       transactions v2 (KIP-890)
13       topic ids (KIP-516)
=======  ====================================================================================

Each partition is asked for itself (``Partition.append_produced``): one that refuses or is damaged
answers with its own error, and the others of the request are written all the same. acks=1 is
answered once the batch counts on this broker, as the flush policy has it; acks=all once it is
committed, that is on every replica in sync, of which there must be ``min.insync.replicas`` before
and after, or REQUEST_TIMED_OUT after the request's ``timeout_ms``. With one replica the two are the
same. acks=0 is never answered; an error there ends the connection. The batch that begins a
transaction in a partition is verified with the coordinator of the transactional id first; from
version 12 on that adds it to the transaction (``runtime.replicas.transactional_appends``).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Final

from millstream.handlers.access import access_of, topic_name, with_added
from millstream.handlers.current_leader import current_leader, live_nodes
from millstream.handlers.request import Answer, Reply, RequestContext
from millstream.model.acl import AclOperation, AclResource
from millstream.model.clock import TimerHandle
from millstream.model.deferred import Deferred, spawn
from millstream.model.errors import ConnectionClosedError, ErrorCode, KafkaError
from millstream.model.topic import TopicId
from millstream.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from millstream.records.batch import (
    ATTRIBUTES_POSITION,
    HEADER_SIZE,
    TRANSACTIONAL_BIT,
    Batch,
)
from millstream.records.limits import NotOneBatchError, RecordsRefusedError
from millstream.records.validation import claims_transaction
from millstream.runtime.replicas.admission import NotAdmittedError
from millstream.runtime.replicas.partition import Partition
from millstream.runtime.services import Services
from millstream.storage.log import AppendResult

_VALID_ACKS = (-1, 0, 1)
_WITHOUT_LOG_START = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    }
)
_FIRST_VERSION_WITH_LEADERS = 10
_FIRST_VERSION_WITH_TOPIC_IDS = 13
_TOPIC: Final = AclResource.TOPIC
_FAILED_UNANSWERED = "a produce request with acks=0 failed"


@dataclass(slots=True)
class _Unsettled:
    """One partition's answer that does not count yet: its batch is written, or about to be."""

    partition: Partition
    answer: PartitionProduceResponse
    appended: AppendResult | Deferred[AppendResult]


def handle(
    services: Services, context: RequestContext, request: ProduceRequest
) -> Answer | Deferred[Answer]:
    """Append every partition's batch, then answer when all of them count."""
    acks = request.acks
    if acks not in _VALID_ACKS:
        return failed(context, request, KafkaError(ErrorCode.INVALID_REQUIRED_ACKS))
    if request.transactional_id is None and _claims_transaction(request):
        error = KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        return failed(context, request, error)
    transactional_id, version = request.transactional_id, context.version
    if (
        transactional_id is not None
        and (refusal := _transaction_refused(services, context, request, transactional_id))
        is not None
    ):
        return failed(context, request, refusal)
    now_ms = services.clock.now_ms()
    unsettled: list[_Unsettled] = []
    responses: list[TopicProduceResponse] = []
    has_errors = False
    for topic in _each_partition_once(request.topic_data):
        answers: list[PartitionProduceResponse] = []
        for data in topic.partition_data:
            partition: Partition | None = None
            try:
                partition = _partition(services, topic, data.index, version)
                appended = partition.append_produced(
                    data.records or b"",
                    acks=acks,
                    version=version,
                    now_ms=now_ms,
                    transactional_id=transactional_id,
                )
                answer = _appended(partition, data.index, appended, unsettled)
            except KafkaError as error:
                has_errors = True
                answer = _refused(data.index, error, partition)
            answers.append(answer)
        responses.append(
            TopicProduceResponse(
                name=topic.name, topic_id=topic.topic_id, partition_responses=answers
            )
        )
    if acks == 0:
        return _unanswered(unsettled, has_errors=has_errors)
    response = ProduceResponse(responses=responses)
    if has_errors:
        _name_leaders(services, context, response)
    if not unsettled:
        return response
    return _Commit(services, context, request, response, unsettled).outcome


def handle_authorized(
    services: Services, context: RequestContext, request: ProduceRequest
) -> Reply:
    """Append what the client may write: WRITE on the topic, and on the transactional id where
    records belong to a transaction. What it may not write is TOPIC_AUTHORIZATION_FAILED, or for the
    request as a whole TRANSACTIONAL_ID_AUTHORIZATION_FAILED.
    """
    for topic in request.topic_data:
        if (topic.name or topic.topic_id) not in context.connection.writable:
            return _handle_allowed(services, context, request)
    return handle(services, context, request)


def _handle_allowed(services: Services, context: RequestContext, request: ProduceRequest) -> Reply:
    access = access_of(services, context)
    assert access is not None
    transactional_id = request.transactional_id
    if (
        transactional_id is not None
        and _claims_transaction(request)
        and not access.allows(AclOperation.WRITE, AclResource.TRANSACTIONAL_ID, transactional_id)
    ):
        error = KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        return failed(context, request, error)
    names = [topic_name(services, topic.name, topic.topic_id) for topic in request.topic_data]
    allowed = access.allowed_names(AclOperation.WRITE, _TOPIC, filter(None, names))
    permitted: list[TopicProduceData] = []
    refused: list[TopicProduceData] = []
    for topic, name in zip(request.topic_data, names, strict=True):
        (refused if name and name not in allowed else permitted).append(topic)
    if not refused:
        access.keep_writable(
            topic.name or topic.topic_id
            for topic, name in zip(request.topic_data, names, strict=True)
            if name
        )
        return handle(services, context, request)
    request.topic_data = permitted
    reply = handle(services, context, request)
    request.topic_data = refused
    error = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    answers = failed(context, request, error)  # with acks=0 it closes the connection
    return with_added(reply, lambda response: response.responses.extend(answers.responses))


def _transaction_refused(
    services: Services, context: RequestContext, request: ProduceRequest, transactional_id: str
) -> KafkaError | None:
    """Return why the records of a transactional client are not appended, None where they are."""
    access = access_of(services, context)
    if (
        access is not None
        and _claims_transaction(request)
        and not access.allows(AclOperation.WRITE, AclResource.TRANSACTIONAL_ID, transactional_id)
    ):
        return KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    topics = request.topic_data
    is_of_one_batch = len(topics) == 1 and len(topics[0].partition_data) == 1
    if not is_of_one_batch and len(_transactional_producers(request)) > 1:
        reason = "Transactional records contained more than one producer ID"
        return KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, reason)
    return None


def failed(context: RequestContext, request: ProduceRequest, error: KafkaError) -> ProduceResponse:
    """Refuse every partition; ConnectionClosedError where no answer is wanted."""
    if request.acks == 0:
        raise ConnectionClosedError(_FAILED_UNANSWERED)
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[_refused(data.index, error) for data in topic.partition_data],
            )
            for topic in request.topic_data
        ]
    )


def _claims_transaction(request: ProduceRequest) -> bool:
    for topic in request.topic_data:
        for data in topic.partition_data:
            records = data.records
            # Nearly every batch is known by one bit to belong to no transaction.
            if (
                records is not None
                and len(records) >= HEADER_SIZE
                and records[ATTRIBUTES_POSITION + 1] & TRANSACTIONAL_BIT
                and claims_transaction(records)
            ):
                return True
    return False


def _transactional_producers(request: ProduceRequest) -> set[tuple[int, int]]:
    """Return the ids and epochs of the producers whose transactions a request writes into."""
    found = set()
    for topic in request.topic_data:
        for data in topic.partition_data:
            if data.records is not None and claims_transaction(data.records):
                batch = Batch(memoryview(data.records))
                found.add((batch.producer_id, batch.producer_epoch))
    return found


def _unanswered(unsettled: list[_Unsettled], *, has_errors: bool) -> Deferred[Answer] | None:
    """End a request with acks=0: an error closes the connection, the only way to tell of it (Kafka:
    ``closeConnection``), also one that comes when a batch has waited for its append.
    """
    if has_errors:
        raise ConnectionClosedError(_FAILED_UNANSWERED)
    appending = [one.appended for one in unsettled if isinstance(one.appended, Deferred)]
    return spawn(_all_appended(appending)) if appending else None


async def _all_appended(appending: list[Deferred[AppendResult]]) -> None:
    try:
        for appended in appending:
            await appended
    except KafkaError as error:
        raise ConnectionClosedError(_FAILED_UNANSWERED) from error


def _name_leaders(services: Services, context: RequestContext, response: ProduceResponse) -> None:
    """Say who leads what is refused for another leadership, where there is room (KIP-951)."""
    if context.version < _FIRST_VERSION_WITH_LEADERS:
        return
    leaders = []
    for topic in response.responses:
        image = services.metadata.topic_by_id(topic.topic_id)
        name = topic.name if image is None else image.name
        for answer in topic.partition_responses:
            if answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER.code:
                leader, epoch = current_leader(services, name, answer.index)
                answer.current_leader = LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
                leaders.append(leader)
    listener = context.connection.listener
    for node in live_nodes(services, leaders, listener):
        endpoint = node.endpoint(listener)
        response.node_endpoints.append(
            NodeEndpoint(
                node_id=node.broker_id, host=endpoint.host, port=endpoint.port, rack=node.rack
            )
        )


def _each_partition_once(topics: list[TopicProduceData]) -> list[TopicProduceData]:
    """Name each topic and partition once; of a partition named twice the last batch counts.

    Kafka gathers a request in a map, so that is what its answers look like.
    """
    if len(topics) == 1 and len(topics[0].partition_data) == 1:
        return topics
    gathered: dict[tuple[str, TopicId], dict[int, PartitionProduceData]] = {}
    for topic in topics:
        for data in topic.partition_data:
            gathered.setdefault((topic.name, topic.topic_id), {})[data.index] = data
    return [
        TopicProduceData(name=name, topic_id=topic_id, partition_data=list(partitions.values()))
        for (name, topic_id), partitions in gathered.items()
    ]


def _partition(services: Services, topic: TopicProduceData, index: int, version: int) -> Partition:
    """Find the partition by what this version names it with."""
    partitions = services.partitions
    by_id = version >= _FIRST_VERSION_WITH_TOPIC_IDS
    slots = partitions.by_id.get(topic.topic_id) if by_id else partitions.by_name.get(topic.name)
    if slots is not None and 0 <= index < len(slots):
        partition = slots[index]
        if partition is not None:
            return partition
    if not by_id:
        return partitions.get(topic.name, index)
    image = services.metadata.topic_by_id(topic.topic_id)
    if image is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
    return partitions.get(image.name, index)


def _appended(
    partition: Partition,
    index: int,
    appended: AppendResult | Deferred[AppendResult],
    unsettled: list[_Unsettled],
) -> PartitionProduceResponse:
    """Prepare the answer for a batch that is written or will be; note one that does not count."""
    if isinstance(appended, Deferred):
        answer = PartitionProduceResponse(index=index, error_code=0, base_offset=-1)
        unsettled.append(_Unsettled(partition, answer, appended))
        return answer
    answer = PartitionProduceResponse(
        index=index,
        error_code=0,
        base_offset=appended.base_offset,
        log_append_time_ms=appended.log_append_time_ms,
        log_start_offset=appended.log_start_offset,
    )
    if not partition.is_acknowledged(appended.last_offset):
        unsettled.append(_Unsettled(partition, answer, appended))
    return answer


def _refused(
    index: int, error: KafkaError, partition: Partition | None = None
) -> PartitionProduceResponse:
    """Refuse one partition's batch; where the batch is at fault the log start is told with it."""
    log_start_offset = -1
    at_the_log = error.error not in _WITHOUT_LOG_START and not isinstance(
        error, NotOneBatchError | NotAdmittedError
    )
    if partition is not None and at_the_log:
        log_start_offset = partition.log_start_offset
    record_errors = error.record_errors if isinstance(error, RecordsRefusedError) else ()
    return PartitionProduceResponse(
        index=index,
        error_code=error.error.code,
        base_offset=-1,
        log_start_offset=log_start_offset,
        record_errors=[
            BatchIndexAndErrorMessage(
                batch_index=record.batch_index, batch_index_error_message=record.message
            )
            for record in record_errors
        ],
        error_message=error.message,
    )


class _Commit:
    """A produce request whose batches are written and do not count yet (``DelayedProduce``).

    ``timeout_ms`` of the request bounds the wait for replicas. With one replica, and with acks=1,
    what is waited for is this broker's own disk, which either writes or goes offline.
    """

    __slots__ = (
        "_acks",
        "_context",
        "_has_refusal",
        "_left",
        "_response",
        "_services",
        "_timer",
        "outcome",
    )

    def __init__(
        self,
        services: Services,
        context: RequestContext,
        request: ProduceRequest,
        response: ProduceResponse,
        unsettled: list[_Unsettled],
    ) -> None:
        self.outcome: Deferred[Answer] = Deferred()
        self._services = services
        self._context = context
        self._acks = request.acks
        self._response = response
        self._left = dict.fromkeys(id(one.answer) for one in unsettled)
        self._timer: TimerHandle | None = None
        self._has_refusal = False
        for one in unsettled:
            if isinstance(one.appended, Deferred):
                one.appended.on_done(partial(self._appended, one))
            else:
                self._wait(one, one.appended)
        if self._left and self._acks == -1:
            self._limit(unsettled, request.timeout_ms)

    def _limit(self, unsettled: list[_Unsettled], timeout_ms: int) -> None:
        """Wait no longer than the client does, where it is for other brokers."""
        for one in unsettled:
            if one.partition.has_followers:
                answers = [each.answer for each in unsettled]
                self._timer = self._services.clock.call_later(
                    max(0, timeout_ms), partial(self._expire, answers)
                )
                return

    def _appended(self, one: _Unsettled, ready: Deferred[AppendResult]) -> None:
        """A batch that had to wait for its append is written now, or refused."""
        try:
            result = ready.result()
        except KafkaError as error:
            self._refuse(one.answer, _refused(one.answer.index, error, one.partition))
            self._settle(one.answer)
            return
        if id(one.answer) not in self._left:
            return
        answer = one.answer
        answer.base_offset = result.base_offset
        answer.log_append_time_ms = result.log_append_time_ms
        answer.log_start_offset = result.log_start_offset
        self._wait(one, result)

    def _wait(self, one: _Unsettled, result: AppendResult) -> None:
        one.partition.wait_for_acks(
            result.last_offset, self._acks, partial(self._counts, one.answer)
        )

    def _counts(self, answer: PartitionProduceResponse, error: KafkaError | None) -> None:
        if error is not None:
            self._refuse(answer, _refused(answer.index, error))
        self._settle(answer)

    def _refuse(self, answer: PartitionProduceResponse, refusal: PartitionProduceResponse) -> None:
        if id(answer) in self._left:
            self._has_refusal = True
            _turn_into_refusal(answer, refusal)

    def _expire(self, answers: list[PartitionProduceResponse]) -> None:
        """The replicas take too long; what they have is written, and may yet be committed."""
        error = KafkaError(ErrorCode.REQUEST_TIMED_OUT)
        for answer in answers:
            self._counts(answer, error)

    def _settle(self, answer: PartitionProduceResponse) -> None:
        if self._left.pop(id(answer), self) is self or self._left:
            return
        if self._timer is not None:
            self._timer.cancel()
        if self._has_refusal:  # a leadership may have ended meanwhile
            _name_leaders(self._services, self._context, self._response)
        self.outcome.complete(self._response)


def _turn_into_refusal(answer: PartitionProduceResponse, refusal: PartitionProduceResponse) -> None:
    """Turn an answer that was prepared into a refusal."""
    answer.error_code = refusal.error_code
    answer.error_message = refusal.error_message
    answer.record_errors = refusal.record_errors
    answer.base_offset = -1
    answer.log_append_time_ms = -1
    answer.log_start_offset = refusal.log_start_offset
