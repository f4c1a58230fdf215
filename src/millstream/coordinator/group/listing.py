"""DescribeGroups and ListGroups: what others may see of a group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from millstream.coordinator.group.group import ClassicGroup
from millstream.coordinator.group.groups import Groups
from millstream.coordinator.group.states import GroupState
from millstream.model.errors import ErrorCode
from millstream.protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember
from millstream.protocol.messages.list_groups import ListedGroup

CLASSIC_TYPE: Final = "classic"
_FIRST_VERSION_WITH_GROUP_ID_NOT_FOUND: Final = 6


def describe_group(groups: Groups, group_id: str, version: int) -> DescribedGroup:
    """Return a group's state and members; what they want and have only while it is stable.

    An unknown group is Dead, and from version 6 on an error too (KIP-1043).
    """
    group = groups.get(group_id)
    if group is None:
        error, message = ErrorCode.NONE, None
        if version >= _FIRST_VERSION_WITH_GROUP_ID_NOT_FOUND:
            error, message = ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found."
        return DescribedGroup(
            error_code=error.code,
            error_message=message,
            group_id=group_id,
            group_state=GroupState.DEAD.value,
            protocol_type="",
            protocol_data="",
            members=[],
        )
    protocol = group.protocol_name if group.state is GroupState.STABLE else None
    return DescribedGroup(
        error_code=ErrorCode.NONE.code,
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=protocol or "",
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=b"" if protocol is None else member.protocols[protocol],
                member_assignment=member.assignment,
            )
            for member in group.members.values()
        ],
    )


def list_groups(
    groups: Groups, *, states: Sequence[str], types: Sequence[str]
) -> list[ListedGroup]:
    """Return the groups in one of the states and of one of the types, whatever their case; an
    empty filter lets all pass (KIP-518, KIP-848).
    """
    wanted_states = {state.lower().strip() for state in states}
    if types and CLASSIC_TYPE not in {name.lower() for name in types}:
        return []
    return [
        _listed(group)
        for group in groups
        if not states or group.state.value.lower() in wanted_states
    ]


def _listed(group: ClassicGroup) -> ListedGroup:
    return ListedGroup(
        group_id=group.group_id,
        protocol_type=group.protocol_type or "",
        group_state=group.state.value,
        group_type=CLASSIC_TYPE,
    )
