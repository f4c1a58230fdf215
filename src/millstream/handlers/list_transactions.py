"""ListTransactions (key 66), versions 0 to 2 (KIP-664).

=======  ====================================================================================
version  what it brings
=======  ====================================================================================
1        a filter by the time that a transaction has been running (KIP-994)
2        a filter by an RE2 expression for the whole transactional id (KIP-1152);
         INVALID_REGULAR_EXPRESSION
=======  ====================================================================================

Lists the transactional ids that are coordinated here, whatever their state. Filters by state are
Kafka's names, in their case; those that no state has are sent back. While a coordinator loads the
list would have holes, so it is refused. A worker matches the expression, in time linear to the ids;
the longest that is taken is that of subscriptions.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from millstream.coordinator.group.consumer.regular_expressions import check, resolve
from millstream.coordinator.transaction.listing import TransactionFilter, unknown_states
from millstream.handlers.access import access_of
from millstream.handlers.request import RequestContext
from millstream.model.acl import AclOperation, AclResource
from millstream.model.errors import ErrorCode, KafkaError
from millstream.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)
from millstream.runtime.services import Services

_LANE: Final = "coordinator-task"


async def handle(
    services: Services, context: RequestContext, request: ListTransactionsRequest
) -> ListTransactionsResponse:
    """List the transactional ids that this broker coordinates."""
    pattern = request.transactional_id_pattern
    if pattern:
        check(pattern)
    wanted = TransactionFilter(
        states=frozenset(request.state_filters),
        producer_ids=frozenset(request.producer_id_filters),
        longer_than_ms=request.duration_filter,
    )
    listed: list[TransactionState] = []
    for reply in services.transactions.list_transactions(wanted):
        try:
            listed += await reply
        except KafkaError as error:
            if error.error is not ErrorCode.NOT_COORDINATOR:
                raise
    if pattern:
        ids = [each.transactional_id for each in listed]
        matched = await services.offload.run(_LANE, partial(resolve, [pattern], ids))
        listed = [each for each in listed if each.transactional_id in matched[pattern]]
    access = access_of(services, context)
    if access is not None:
        listed, _ = access.split(
            AclOperation.DESCRIBE,
            AclResource.TRANSACTIONAL_ID,
            listed,
            lambda state: state.transactional_id,
        )
    return ListTransactionsResponse(
        error_code=ErrorCode.NONE.code,
        unknown_state_filters=unknown_states(request.state_filters),
        transaction_states=listed,
    )


def failed(
    context: RequestContext, request: ListTransactionsRequest, error: KafkaError
) -> ListTransactionsResponse:
    """Refuse the request."""
    return ListTransactionsResponse(
        error_code=error.error.code, unknown_state_filters=[], transaction_states=[]
    )
