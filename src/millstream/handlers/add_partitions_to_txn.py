"""AddPartitionsToTxn (key 24), versions 0 to 5.

=======  ====================================================================================
version  what it brings
=======  ====================================================================================
1        throttled after the answer
2        PRODUCER_FENCED, which is INVALID_PRODUCER_EPOCH below (KIP-588)
3        flexible
4        several transactions at once, and the question whether partitions are in one: for
         brokers, which verify what is written to them (KIP-890)
5        TRANSACTION_ABORTABLE is understood
=======  ====================================================================================

A partition that does not exist keeps all others of its transaction out: OPERATION_NOT_ATTEMPTED.
A partition that is only verified and is not in the transaction is TRANSACTION_ABORTABLE. A client
needs WRITE on the transactional id and on each topic; TOPIC_AUTHORIZATION_FAILED keeps the others
out, too. A broker needs CLUSTER_ACTION.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Final, TypeVar

from millstream.coordinator.transaction.init_producer_id import ProducerIdAndEpoch
from millstream.coordinator.transaction.metadata import EPOCH_BUMP, Partitions
from millstream.handlers.access import Access, access_of
from millstream.handlers.request import RequestContext
from millstream.handlers.transaction_errors import fit_fence
from millstream.model.acl import AclOperation, AclResource
from millstream.model.deferred import Deferred, spawn
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.topic import INTERNAL_TOPICS
from millstream.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from millstream.runtime.services import Services

_FIRST_VERSION_WITH_PRODUCER_FENCED: Final = 2
_FIRST_VERSION_OF_BROKERS: Final = 4

A = TypeVar("A")

_Codes = Mapping[str, Mapping[int, ErrorCode]]
"""The answer for each partition of each topic."""


def handle(
    services: Services, context: RequestContext, request: AddPartitionsToTxnRequest
) -> Deferred[AddPartitionsToTxnResponse]:
    """Add partitions to transactions, or verify that they are in them."""
    access = access_of(services, context)
    if context.version >= _FIRST_VERSION_OF_BROKERS:
        if access is not None:
            access.require_on_cluster(AclOperation.CLUSTER_ACTION)
        return spawn(_serve_all(services, context, request.transactions))
    transaction = AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )
    answer = partial(_answer_client, context)
    return _serve(services, context, transaction, access, answer)


def _answer_client(context: RequestContext, codes: _Codes) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_results(context, codes))


def _as_they_are(codes: _Codes) -> _Codes:
    return codes


def failed(
    context: RequestContext, request: AddPartitionsToTxnRequest, error: KafkaError
) -> AddPartitionsToTxnResponse:
    """Refuse the request: in a version for clients, each partition."""
    if context.version >= _FIRST_VERSION_OF_BROKERS:
        return AddPartitionsToTxnResponse(error_code=error.error.code)
    partitions = _partitions(request.v3_and_below_topics)
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=_results(context, _all(partitions, error.error))
    )


async def _serve_all(
    services: Services,
    context: RequestContext,
    transactions: Iterable[AddPartitionsToTxnTransaction],
) -> AddPartitionsToTxnResponse:
    """Serve a broker's transactions together; each of them answers for itself."""
    pending = [(each, _serve_one(services, context, each)) for each in transactions]
    return AddPartitionsToTxnResponse(
        results_by_transaction=[await _result(context, each, outcome) for each, outcome in pending]
    )


def _serve_one(
    services: Services, context: RequestContext, request: AddPartitionsToTxnTransaction
) -> Deferred[_Codes]:
    try:
        return _serve(services, context, request, None, _as_they_are)
    except KafkaError as error:
        refused: Deferred[_Codes] = Deferred()
        refused.fail(error)
        return refused


def _serve(
    services: Services,
    context: RequestContext,
    request: AddPartitionsToTxnTransaction,
    access: Access | None,
    answer: Callable[[_Codes], A],
) -> Deferred[A]:
    """Serve one transaction; ``answer`` makes of its codes what is returned."""
    partitions = _partitions(request.topics)
    not_allowed = frozenset[str]()
    if access is not None:
        resource = AclResource.TRANSACTIONAL_ID
        if not access.allows(AclOperation.WRITE, resource, request.transactional_id):
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        asked = partitions.keys() - INTERNAL_TOPICS  # those are nobody's to write to
        not_allowed = frozenset(partitions) - access.allowed_names(
            AclOperation.WRITE, AclResource.TOPIC, asked
        )
    unknown = _unknown(services, partitions)
    if unknown or not_allowed:
        return Deferred.of(answer(_refused(partitions, unknown, not_allowed)))
    producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    if request.verify_only:
        verified = services.transactions.verify_partitions(
            request.transactional_id, producer, partitions
        )
        return verified.then(answer)
    # Brokers add partitions for the producers of transaction version 2 alone.
    is_broker = context.version >= _FIRST_VERSION_OF_BROKERS
    added = services.transactions.add_partitions(
        request.transactional_id,
        producer,
        partitions,
        client_version=EPOCH_BUMP if is_broker else 0,
    )
    return added.then(lambda code: answer(_all(partitions, code)))


async def _result(
    context: RequestContext,
    request: AddPartitionsToTxnTransaction,
    outcome: Deferred[_Codes],
) -> AddPartitionsToTxnResult:
    try:
        codes = await outcome
    except KafkaError as error:
        codes = _all(_partitions(request.topics), error.error)
    return AddPartitionsToTxnResult(
        transactional_id=request.transactional_id, topic_results=_results(context, codes)
    )


def _unknown(services: Services, partitions: Partitions) -> dict[str, frozenset[int]]:
    """Return the partitions that do not exist."""
    unknown = {}
    for topic, indexes in partitions.items():
        image = services.metadata.topic(topic)
        count = 0 if image is None else len(image.partitions)
        if indexes and min(indexes) >= 0 and max(indexes) < count:
            continue
        missing = frozenset(index for index in indexes if not 0 <= index < count)
        if missing:
            unknown[topic] = missing
    return unknown


def _refused(partitions: Partitions, unknown: Partitions, not_allowed: Collection[str]) -> _Codes:
    return {
        topic: dict.fromkeys(sorted(indexes), ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        if topic in not_allowed
        else {
            index: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if index in unknown.get(topic, ())
            else ErrorCode.OPERATION_NOT_ATTEMPTED
            for index in sorted(indexes)
        }
        for topic, indexes in partitions.items()
    }


def _partitions(topics: Iterable[AddPartitionsToTxnTopic]) -> Partitions:
    partitions: dict[str, frozenset[int]] = {}
    for topic in topics:
        partitions[topic.name] = partitions.get(topic.name, frozenset()) | {*topic.partitions}
    return partitions


def _all(partitions: Partitions, code: ErrorCode) -> _Codes:
    return {topic: dict.fromkeys(sorted(indexes), code) for topic, indexes in partitions.items()}


def _results(context: RequestContext, codes: _Codes) -> list[AddPartitionsToTxnTopicResult]:
    known_from = _FIRST_VERSION_WITH_PRODUCER_FENCED
    results = []
    for topic, by_index in codes.items():
        partitions = []
        newest, number = ErrorCode.NONE, 0
        for index, code in by_index.items():
            if code is not newest:
                newest = code
                number = fit_fence(code, context.version, known_from=known_from).code
            partitions.append(
                AddPartitionsToTxnPartitionResult(
                    partition_index=index, partition_error_code=number
                )
            )
        results.append(AddPartitionsToTxnTopicResult(name=topic, results_by_partition=partitions))
    return results
