"""DescribeTransactions (key 65), version 0 (KIP-664).

The state of transactional ids that are coordinated here, each with an error of its own:
TRANSACTIONAL_ID_NOT_FOUND, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS. While a transaction ends
its partitions are those that have no marker yet. The client needs DESCRIBE on each transactional
id; topics that it may not DESCRIBE are left out.
"""

from __future__ import annotations

from millstream.handlers.access import Access, access_of
from millstream.handlers.request import RequestContext
from millstream.model.acl import AclOperation, AclResource
from millstream.model.deferred import Deferred
from millstream.model.errors import ErrorCode, KafkaError
from millstream.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from millstream.runtime.services import Services


async def handle(
    services: Services, context: RequestContext, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    """Describe each transactional id."""
    access = access_of(services, context)
    pending = [(each, _describe(services, each, access)) for each in request.transactional_ids]
    states = [await _finish(each, reply) for each, reply in pending]
    if access is not None:
        for state in states:
            state.topics, _ = access.split(
                AclOperation.DESCRIBE, AclResource.TOPIC, state.topics, lambda topic: topic.topic
            )
    return DescribeTransactionsResponse(transaction_states=states)


def _describe(
    services: Services, transactional_id: str, access: Access | None
) -> Deferred[TransactionState]:
    resource = AclResource.TRANSACTIONAL_ID
    if access is None or access.allows(AclOperation.DESCRIBE, resource, transactional_id):
        return services.transactions.describe_transaction(transactional_id)
    refused: Deferred[TransactionState] = Deferred()
    refused.fail(KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
    return refused


def failed(
    context: RequestContext, request: DescribeTransactionsRequest, error: KafkaError
) -> DescribeTransactionsResponse:
    """Refuse every id."""
    return DescribeTransactionsResponse(
        transaction_states=[_refused(each, error.error) for each in request.transactional_ids]
    )


async def _finish(transactional_id: str, reply: Deferred[TransactionState]) -> TransactionState:
    try:
        return await reply
    except KafkaError as error:
        return _refused(transactional_id, error.error)


def _refused(transactional_id: str, error: ErrorCode) -> TransactionState:
    return TransactionState(
        error_code=error.code,
        transactional_id=transactional_id,
        transaction_state="",
        transaction_timeout_ms=0,
        transaction_start_time_ms=0,
        producer_id=0,
        producer_epoch=0,
        topics=[],
    )
