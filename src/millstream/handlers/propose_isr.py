"""ProposeIsr (key 10001), version 0: a leader asks the controller for other ISRs.

Each partition has its own outcome; STALE_BROKER_EPOCH and NOT_CONTROLLER refuse the whole request.
"""

from __future__ import annotations

from millstream.controller.isr_changes import WantedIsr
from millstream.handlers.inter_broker import cluster_of
from millstream.handlers.request import RequestContext
from millstream.model.broker import BrokerId
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.leadership import LeaderRecoveryState
from millstream.protocol.messages.propose_isr import (
    ProposedPartition,
    ProposedResult,
    ProposeIsrRequest,
    ProposeIsrResponse,
)
from millstream.runtime.metadata.metadata_messages import members, partition_message
from millstream.runtime.services import Services


async def handle(
    services: Services, context: RequestContext, request: ProposeIsrRequest
) -> ProposeIsrResponse:
    """Decide, and answer with the states as they are written."""
    cluster = cluster_of(services)
    results = await cluster.controller.replicas.propose(
        BrokerId(request.broker_id),
        request.broker_epoch,
        [_wanted(each) for each in request.partitions],
    )
    return ProposeIsrResponse(
        partitions=[
            ProposedResult(error_code=result.error.code, error_message=result.message)
            if isinstance(result, KafkaError)
            else ProposedResult(
                error_code=ErrorCode.NONE.code, state=partition_message(each.index, result)
            )
            for each, result in zip(request.partitions, results, strict=True)
        ]
    )


def failed(
    context: RequestContext, request: ProposeIsrRequest, error: KafkaError
) -> ProposeIsrResponse:
    """Refuse the request."""
    return ProposeIsrResponse(error_code=error.error.code, partitions=[])


def _wanted(message: ProposedPartition) -> WantedIsr:
    try:
        recovery_state = LeaderRecoveryState(message.leader_recovery_state)
    except ValueError:
        reason = f"there is no recovery state {message.leader_recovery_state}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, reason) from None
    return WantedIsr(
        topic_id=message.topic_id,
        index=message.index,
        leader_epoch=message.leader_epoch,
        partition_epoch=message.partition_epoch,
        isr=members(message.isr),
        recovery_state=recovery_state,
    )
