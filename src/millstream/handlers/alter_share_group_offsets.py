"""AlterShareGroupOffsets (key 91), version 0 (KIP-932).

Share partitions of a group without members begin anew at other offsets; a group that is not there
is made. NON_EMPTY_GROUP where there are members, GROUP_ID_NOT_FOUND for another kind of group,
INVALID_GROUP_ID for an empty id, UNKNOWN_TOPIC_OR_PARTITION for each partition that is not there.
"""

from __future__ import annotations

from millstream.handlers.groups import require_share_groups
from millstream.handlers.request import RequestContext
from millstream.model.deferred import Deferred
from millstream.model.errors import ErrorCode, KafkaError
from millstream.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
)
from millstream.runtime.services import Services


def handle(
    services: Services, context: RequestContext, request: AlterShareGroupOffsetsRequest
) -> Deferred[AlterShareGroupOffsetsResponse]:
    """Answer once the share coordinators have stored the offsets."""
    require_share_groups(services)
    if not request.group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
    return services.share_groups.alter_offsets(request)


def failed(
    context: RequestContext, request: AlterShareGroupOffsetsRequest, error: KafkaError
) -> AlterShareGroupOffsetsResponse:
    """Refuse the request."""
    return AlterShareGroupOffsetsResponse(
        error_code=error.error.code,
        error_message=error.message or error.error.name,
        responses=[],
    )
