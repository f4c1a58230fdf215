"""ShareGroupDescribe (key 77), version 1 (KIP-932).

Epochs, members and assignments of share groups. GROUP_ID_NOT_FOUND for a group that is not there or
is of another kind. UNSUPPORTED_VERSION while the feature `share.version` is below 1. Until there is
an authorizer everybody may do everything with a group.
"""

from __future__ import annotations

from millstream.handlers import authorized_operations
from millstream.handlers.groups import require_share_groups
from millstream.handlers.request import RequestContext
from millstream.model.deferred import Deferred
from millstream.model.errors import ErrorCode, KafkaError
from millstream.protocol.messages.share_group_describe import (
    DescribedGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from millstream.runtime.services import Services


async def handle(
    services: Services, context: RequestContext, request: ShareGroupDescribeRequest
) -> ShareGroupDescribeResponse:
    """Describe each group."""
    require_share_groups(services)
    pending = [
        (group_id, services.share_groups.describe(group_id)) for group_id in request.group_ids
    ]
    groups = [await _finish(group_id, reply) for group_id, reply in pending]
    if request.include_authorized_operations:
        for group in groups:
            if group.error_code == ErrorCode.NONE.code:
                group.authorized_operations = authorized_operations.GROUP
    return ShareGroupDescribeResponse(groups=groups)


def failed(
    context: RequestContext, request: ShareGroupDescribeRequest, error: KafkaError
) -> ShareGroupDescribeResponse:
    """Refuse every group."""
    return ShareGroupDescribeResponse(
        groups=[_refused(group_id, error) for group_id in request.group_ids]
    )


async def _finish(group_id: str, reply: Deferred[DescribedGroup]) -> DescribedGroup:
    if not group_id:
        return _refused(group_id, KafkaError(ErrorCode.INVALID_GROUP_ID))
    try:
        return await reply
    except KafkaError as error:
        return _refused(group_id, error)


def _refused(group_id: str, error: KafkaError) -> DescribedGroup:
    return DescribedGroup(
        error_code=error.error.code,
        error_message=error.message,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=[],
    )
