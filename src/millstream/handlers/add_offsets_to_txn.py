"""AddOffsetsToTxn (key 25), versions 0 to 4.

=======  ====================================================================================
version  what it brings
=======  ====================================================================================
1        throttled after the answer
2        PRODUCER_FENCED, which is INVALID_PRODUCER_EPOCH below (KIP-588)
3        flexible
4        TRANSACTION_ABORTABLE, which this answer never needs (KIP-890)
=======  ====================================================================================

Adds the partition of ``__consumer_offsets`` that keeps a group to a transaction. Producers of
transaction version 2 do not send this: TxnOffsetCommit adds the partition.
"""

from __future__ import annotations

from typing import Final

from millstream.coordinator.group.partitioner import group_partition
from millstream.coordinator.transaction.init_producer_id import ProducerIdAndEpoch
from millstream.handlers.access import access_of
from millstream.handlers.request import RequestContext
from millstream.handlers.transaction_errors import fit_fence
from millstream.model.acl import AclOperation, AclResource
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.topic import GROUP_METADATA_TOPIC
from millstream.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from millstream.runtime.services import Services

_FIRST_VERSION_WITH_PRODUCER_FENCED: Final = 2


async def handle(
    services: Services, context: RequestContext, request: AddOffsetsToTxnRequest
) -> AddOffsetsToTxnResponse:
    """Add a group's partition to a transaction."""
    access = access_of(services, context)
    if access is not None:
        resource = AclResource.TRANSACTIONAL_ID
        if not access.allows(AclOperation.WRITE, resource, request.transactional_id):
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        if not access.allows(AclOperation.READ, AclResource.GROUP, request.group_id):
            raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    image = services.metadata.topic(GROUP_METADATA_TOPIC)
    if image is None:
        # The group's offsets go there next; a marker needs a partition that exists.
        image = await services.ensure_topic(GROUP_METADATA_TOPIC)
    index = group_partition(request.group_id, len(image.partitions))
    await services.transactions.add_partitions(
        request.transactional_id,
        ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
        {GROUP_METADATA_TOPIC: frozenset({index})},
        client_version=0,
    )
    return AddOffsetsToTxnResponse(error_code=ErrorCode.NONE.code)


def failed(
    context: RequestContext, request: AddOffsetsToTxnRequest, error: KafkaError
) -> AddOffsetsToTxnResponse:
    """Refuse the request."""
    code = fit_fence(error.error, context.version, known_from=_FIRST_VERSION_WITH_PRODUCER_FENCED)
    return AddOffsetsToTxnResponse(error_code=code.code)
