"""DescribeGroups and ListGroups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from millstream.coordinator.group.groups import Groups
from millstream.coordinator.group.states import GroupState
from millstream.model.errors import ErrorCode, KafkaError
from millstream.protocol.messages.describe_groups import DescribedGroup
from millstream.protocol.messages.list_groups import ListedGroup

_FIRST_VERSION_WITH_GROUP_ID_NOT_FOUND: Final = 6


def describe_group(groups: Groups, group_id: str, version: int) -> DescribedGroup:
    """Return a classic group's state and members.

    A group that does not exist, or does not use the classic protocol, is Dead, and from version 6
    on an error too (KIP-1043).
    """
    try:
        return groups.require_classic(group_id).describe()
    except KafkaError as refusal:
        error, message = ErrorCode.NONE, None
        if version >= _FIRST_VERSION_WITH_GROUP_ID_NOT_FOUND:
            error, message = refusal.error, refusal.message
        return DescribedGroup(
            error_code=error.code,
            error_message=message,
            group_id=group_id,
            group_state=GroupState.DEAD.value,
            protocol_type="",
            protocol_data="",
            members=[],
        )


def list_groups(
    groups: Groups, *, states: Sequence[str], types: Sequence[str]
) -> list[ListedGroup]:
    """Return the groups in one of the states and of one of the types, ignoring case; an empty
    filter matches all (KIP-518, KIP-848).
    """
    wanted_states = {state.lower().strip() for state in states}
    wanted_types = {name.lower() for name in types}
    return [
        listed
        for listed in (group.listed() for group in groups)
        if (not states or listed.group_state.lower() in wanted_states)
        and (not types or listed.group_type.lower() in wanted_types)
    ]
