"""DeleteShareGroupOffsets (key 92), version 0 (KIP-932).

A group without members forgets all it knows of topics. NON_EMPTY_GROUP where there are members,
GROUP_ID_NOT_FOUND for a group that is not there or is of another kind, INVALID_GROUP_ID for an
empty id, UNKNOWN_TOPIC_OR_PARTITION for a topic of which the group knows nothing.
"""

from __future__ import annotations

from millstream.handlers.groups import require_share_groups
from millstream.handlers.request import RequestContext
from millstream.model.deferred import Deferred
from millstream.model.errors import ErrorCode, KafkaError
from millstream.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
)
from millstream.runtime.services import Services


def handle(
    services: Services, context: RequestContext, request: DeleteShareGroupOffsetsRequest
) -> Deferred[DeleteShareGroupOffsetsResponse]:
    """Answer once the share coordinators have forgotten the state."""
    require_share_groups(services)
    if not request.group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
    return services.share_groups.delete_offsets(request)


def failed(
    context: RequestContext, request: DeleteShareGroupOffsetsRequest, error: KafkaError
) -> DeleteShareGroupOffsetsResponse:
    """Refuse the request."""
    return DeleteShareGroupOffsetsResponse(
        error_code=error.error.code,
        error_message=error.message or error.error.name,
        responses=[],
    )
