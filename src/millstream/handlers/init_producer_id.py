"""InitProducerId (key 22), versions 0 to 5.

=======  ====================================================================================
version  what it brings
=======  ====================================================================================
1        throttled after the answer
2        flexible
3        a producer may name the id and epoch that it has (KIP-360)
4        PRODUCER_FENCED, which only transactions need
5        TRANSACTION_ABORTABLE, which only transactions need (KIP-890)
=======  ====================================================================================

An idempotent producer gets a new id with epoch 0, whatever it names as its own. There are no
transactions yet: a transactional id is refused with UNSUPPORTED_VERSION, which clients take as
final, where a retriable error would let them ask until their own time-out. Clients look for the
transaction's coordinator first and are refused there.
"""

from __future__ import annotations

from millstream.handlers.request import RequestContext
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.producer import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from millstream.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from millstream.runtime.services import Services


async def handle(
    services: Services, context: RequestContext, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    """Hand out a producer id."""
    has_id = request.producer_id != NO_PRODUCER_ID
    if request.transactional_id == "" or has_id != (request.producer_epoch != NO_PRODUCER_EPOCH):
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is not None:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "this broker has no transactions")
    producer_id = await services.producer_ids.next()
    return InitProducerIdResponse(
        error_code=ErrorCode.NONE.code, producer_id=producer_id, producer_epoch=0
    )


def failed(
    context: RequestContext, request: InitProducerIdRequest, error: KafkaError
) -> InitProducerIdResponse:
    """Refuse the request."""
    return InitProducerIdResponse(
        error_code=error.error.code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH
    )
