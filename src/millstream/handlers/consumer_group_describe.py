"""ConsumerGroupDescribe (key 69), versions 0 and 1 (KIP-848).

=======  ====================================================================================
version  what it brings
=======  ====================================================================================
0        epochs, members, assignments and targets of consumer groups
1        the protocol that each member speaks (KIP-1099)
=======  ====================================================================================

GROUP_ID_NOT_FOUND for a group that is not there or is of another kind. UNSUPPORTED_VERSION as for
ConsumerGroupHeartbeat. The client needs DESCRIBE on each group, and on each topic that its members
have.
"""

from __future__ import annotations

from millstream.handlers import authorized_operations
from millstream.handlers.access import access_of
from millstream.handlers.groups import describable_groups, hide_groups, require_consumer_protocol
from millstream.handlers.request import RequestContext
from millstream.model.deferred import Deferred
from millstream.model.errors import ErrorCode, KafkaError
from millstream.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)
from millstream.runtime.services import Services


async def handle(
    services: Services, context: RequestContext, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    """Describe each group."""
    require_consumer_protocol(services)
    access = access_of(services, context)
    allowed, refused = describable_groups(access, request.group_ids)
    pending = [
        (group_id, services.groups.describe_consumer_group(group_id)) for group_id in allowed
    ]
    groups = [await _finish(group_id, reply) for group_id, reply in pending]
    if request.include_authorized_operations:
        for group in groups:
            if group.error_code == ErrorCode.NONE.code:
                group.authorized_operations = authorized_operations.of_group(access, group.group_id)
    groups = hide_groups(access, groups, _assigned_topics, _refused)
    error = KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    return ConsumerGroupDescribeResponse(
        groups=[*(_refused(each, error) for each in refused), *groups]
    )


def _assigned_topics(group: DescribedGroup) -> set[str]:
    return {
        part.topic_name
        for member in group.members
        for assignment in (member.assignment, member.target_assignment)
        for part in assignment.topic_partitions
    }


def failed(
    context: RequestContext, request: ConsumerGroupDescribeRequest, error: KafkaError
) -> ConsumerGroupDescribeResponse:
    """Refuse every group."""
    return ConsumerGroupDescribeResponse(
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
