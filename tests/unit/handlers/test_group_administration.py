"""DescribeGroups, ListGroups, DeleteGroups: what each version says and how."""

from __future__ import annotations

import pytest
from tests.unit.handlers.group_calls import Calls
from tests.unit.handlers.test_offset_commit import TOPIC_ID, commit, topic

from millstream.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from millstream.protocol.messages.describe_groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from millstream.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse


@pytest.fixture
def two_groups(calls: Calls) -> Calls:
    calls.site.create("t", 2, TOPIC_ID)
    for group_id in ("one", "two"):
        commit(calls, topic("t", 0), group_id=group_id)
    return calls


@pytest.mark.parametrize("version", range(7))
def test_describe_in_every_version(two_groups: Calls, version: int) -> None:
    request = DescribeGroupsRequest(groups=["two", "unknown", "one"])
    groups = two_groups.call(request, version, DescribeGroupsResponse).groups
    missing = 69 if version >= 6 else 0
    assert [(g.group_id, g.group_state, g.error_code) for g in groups] == [
        ("two", "Empty", 0),
        ("unknown", "Dead", missing),
        ("one", "Empty", 0),
    ]
    if version >= 6:
        assert groups[1].error_message == "Group unknown not found."


@pytest.mark.parametrize(("wanted", "operations"), [(True, 3400), (False, -(2**31))])
def test_authorized_operations(two_groups: Calls, wanted: bool, operations: int) -> None:
    request = DescribeGroupsRequest(groups=["one"], include_authorized_operations=wanted)
    group = two_groups.call(request, 3, DescribeGroupsResponse).groups[0]
    assert group.authorized_operations == operations


def test_describe_without_a_coordinator(calls_without_topic: Calls) -> None:
    request = DescribeGroupsRequest(groups=["g"])
    group = calls_without_topic.call(request, 6, DescribeGroupsResponse).groups[0]
    assert (group.error_code, group.group_id, group.group_state) == (16, "g", "")


@pytest.mark.parametrize("version", range(6))
def test_list_in_every_version(two_groups: Calls, version: int) -> None:
    groups = two_groups.call(ListGroupsRequest(), version, ListGroupsResponse).groups
    assert {g.group_id for g in groups} == {"one", "two"}
    assert {g.group_state for g in groups} == {"Empty" if version >= 4 else ""}
    assert {g.group_type for g in groups} == {"classic" if version >= 5 else ""}


def test_list_with_filters(two_groups: Calls) -> None:
    request = ListGroupsRequest(states_filter=["stable"], types_filter=[])
    assert two_groups.call(request, 5, ListGroupsResponse).groups == []
    request = ListGroupsRequest(states_filter=["EMPTY"], types_filter=["Classic"])
    assert len(two_groups.call(request, 5, ListGroupsResponse).groups) == 2


def test_list_without_a_coordinator_is_empty(calls_without_topic: Calls) -> None:
    response = calls_without_topic.call(ListGroupsRequest(), 5, ListGroupsResponse)
    assert (response.error_code, response.groups) == (0, [])


def test_list_is_refused_while_a_coordinator_loads(two_groups: Calls) -> None:
    two_groups.site.groups.stop()
    two_groups.site.offload.held = True
    two_groups.site.groups.start()
    response = two_groups.call(ListGroupsRequest(), 5, ListGroupsResponse)
    assert (response.error_code, response.groups) == (14, [])
    two_groups.site.offload.held = False
    two_groups.site.offload.release()


@pytest.mark.parametrize("version", range(3))
def test_delete_in_every_version(two_groups: Calls, version: int) -> None:
    request = DeleteGroupsRequest(groups_names=["one", "unknown", "one", ""])
    results = two_groups.call(request, version, DeleteGroupsResponse).results
    assert [(r.group_id, r.error_code) for r in results] == [
        ("one", 0),
        ("unknown", 69),
        ("", 69),
    ]
    groups = two_groups.call(ListGroupsRequest(), 5, ListGroupsResponse).groups
    assert [g.group_id for g in groups] == ["two"]
