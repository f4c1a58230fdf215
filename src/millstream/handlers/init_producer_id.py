"""InitProducerId (key 22), versions 0 to 5.

=======  ====================================================================================
version  what it brings
=======  ====================================================================================
1        throttled after the answer
2        flexible
3        a producer may name the id and epoch that it has (KIP-360)
4        PRODUCER_FENCED, which is INVALID_PRODUCER_EPOCH below (KIP-588)
5        TRANSACTION_ABORTABLE, which this answer never needs (KIP-890)
=======  ====================================================================================

An idempotent producer gets a new id with epoch 0, whatever it names as its own, from any broker. A
transactional one asks the coordinator of its transactional id: see
``coordinator.transaction.init_producer_id``.
"""

from __future__ import annotations

from typing import Final

from millstream.handlers.access import Access, access_of
from millstream.handlers.request import RequestContext
from millstream.handlers.transaction_errors import fit_fence
from millstream.model.acl import AclOperation, AclResource
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.producer import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from millstream.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from millstream.runtime.services import Services

_FIRST_VERSION_WITH_PRODUCER_FENCED: Final = 4


async def handle(
    services: Services, context: RequestContext, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    """Hand out a producer id, and to a transactional producer its epoch."""
    access = access_of(services, context)
    if access is not None:
        _check_allowed(access, request)
    has_id = request.producer_id != NO_PRODUCER_ID
    if request.transactional_id == "" or has_id != (request.producer_epoch != NO_PRODUCER_EPOCH):
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is None:
        return _given(await services.producer_ids.next(), 0)
    from millstream.coordinator.transaction.init_producer_id import ProducerIdAndEpoch

    named = ProducerIdAndEpoch(request.producer_id, request.producer_epoch) if has_id else None
    given = await services.transactions.init_producer_id(
        request.transactional_id, request.transaction_timeout_ms, named
    )
    return _given(given.producer_id, given.epoch)


def _check_allowed(access: Access, request: InitProducerIdRequest) -> None:
    """Raise the KafkaError that refuses a client: with a transactional id it needs WRITE on it,
    without one WRITE on any topic, or what stood for that before: IDEMPOTENT_WRITE.
    """
    transactional_id = request.transactional_id
    if transactional_id is not None:
        resource = AclResource.TRANSACTIONAL_ID
        if not access.allows(AclOperation.WRITE, resource, transactional_id):
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    elif not access.on_cluster(
        AclOperation.IDEMPOTENT_WRITE, tell_denied=False
    ) and not access.allows_any(AclOperation.WRITE, AclResource.TOPIC):
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


def failed(
    context: RequestContext, request: InitProducerIdRequest, error: KafkaError
) -> InitProducerIdResponse:
    """Refuse the request."""
    code = fit_fence(error.error, context.version, known_from=_FIRST_VERSION_WITH_PRODUCER_FENCED)
    return InitProducerIdResponse(
        error_code=code.code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH
    )


def _given(producer_id: int, epoch: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        error_code=ErrorCode.NONE.code, producer_id=producer_id, producer_epoch=epoch
    )
