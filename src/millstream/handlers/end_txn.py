"""EndTxn (key 26), versions 0 to 5.

=======  ====================================================================================
version  what it brings
=======  ====================================================================================
1        throttled after the answer
2        PRODUCER_FENCED, which is INVALID_PRODUCER_EPOCH below (KIP-588)
3        flexible
4        TRANSACTION_ABORTABLE, which this answer never needs (KIP-890)
5        transaction version 2: the epoch is bumped, and the answer has the producer's id and
         epoch for its next transaction (KIP-890)
=======  ====================================================================================

Answered when the outcome is stored; the markers are written after that, and the next transaction of
the producer is refused with CONCURRENT_TRANSACTIONS until they are.
"""

from __future__ import annotations

from typing import Final

from millstream.coordinator.transaction.init_producer_id import ProducerIdAndEpoch
from millstream.handlers.access import access_of
from millstream.handlers.request import RequestContext
from millstream.handlers.transaction_errors import fit_fence
from millstream.model.acl import AclOperation, AclResource
from millstream.model.deferred import Deferred
from millstream.model.errors import ErrorCode, KafkaError
from millstream.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from millstream.runtime.services import Services

_FIRST_VERSION_WITH_PRODUCER_FENCED: Final = 2
_FIRST_VERSION_WITH_EPOCH_BUMP: Final = 5


def handle(
    services: Services, context: RequestContext, request: EndTxnRequest
) -> Deferred[EndTxnResponse]:
    """Commit or abort a transaction."""
    access = access_of(services, context)
    if access is not None and not access.allows(
        AclOperation.WRITE, AclResource.TRANSACTIONAL_ID, request.transactional_id
    ):
        raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    ended = services.transactions.end_transaction(
        request.transactional_id,
        ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
        commit=request.committed,
        bumps_epoch=context.version >= _FIRST_VERSION_WITH_EPOCH_BUMP,
    )
    return ended.then(_answer)


def _answer(after: ProducerIdAndEpoch) -> EndTxnResponse:
    """Say who the producer is from now on."""
    return EndTxnResponse(
        error_code=ErrorCode.NONE.code,
        producer_id=after.producer_id,
        producer_epoch=after.epoch,
    )


def failed(context: RequestContext, request: EndTxnRequest, error: KafkaError) -> EndTxnResponse:
    """Refuse the request."""
    code = fit_fence(error.error, context.version, known_from=_FIRST_VERSION_WITH_PRODUCER_FENCED)
    return EndTxnResponse(error_code=code.code)
