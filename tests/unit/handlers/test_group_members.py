"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup: what each version says and how."""

from __future__ import annotations

import pytest
from tests.unit.coordinator.scene import subscription
from tests.unit.handlers.group_calls import Calls

from millstream.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from millstream.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from millstream.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from millstream.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse


def join_request(member_id: str = "", *, group_id: str = "g", **fields: object) -> JoinGroupRequest:
    values: dict[str, object] = {
        "group_id": group_id,
        "session_timeout_ms": 10_000,
        "member_id": member_id,
        "protocol_type": "consumer",
        "protocols": [JoinGroupRequestProtocol(name="range", metadata=subscription("t"))],
        **fields,
    }
    return JoinGroupRequest(**values)  # type: ignore[arg-type]


def join(calls: Calls, version: int, **fields: object) -> JoinGroupResponse:
    """Join as the first member, with the round trip where there is one."""
    request = join_request(rebalance_timeout_ms=10_000, **fields)
    if version >= 4:
        first = calls.call(request, version, JoinGroupResponse)
        assert first.error_code == 79
        request = join_request(first.member_id, rebalance_timeout_ms=10_000, **fields)
    reply = calls.start(request, version)
    calls.site.clock.advance(10_000)
    response = reply.result()
    assert isinstance(response, JoinGroupResponse)
    return response


@pytest.mark.parametrize("version", range(10))
def test_join_in_every_version(calls: Calls, version: int) -> None:
    response = join(calls, version)
    assert (response.error_code, response.generation_id) == (0, 1)
    assert response.member_id.startswith("web-")
    assert response.leader == response.member_id
    assert response.protocol_name == "range"
    assert response.protocol_type == ("consumer" if version >= 7 else None)
    assert [member.metadata for member in response.members] == [subscription("t")]
    member = calls.site.groups.describe_group("g", 5).result().members[0]
    assert (member.client_id, member.client_host) == ("web", "/10.0.0.7")


def test_metadata_that_is_no_subscription_joins(calls: Calls) -> None:
    """Apache Kafka 4.3 never answers this one."""
    garbage = JoinGroupRequestProtocol(name="range", metadata=b"\x00")
    response = join(calls, 9, protocols=[garbage])
    assert response.error_code == 0
    assert response.members[0].metadata == b"\x00"


def test_a_protocol_named_twice_joins_with_the_first(calls: Calls) -> None:
    """Apache Kafka 4.3 never answers this one."""
    named_twice = [
        JoinGroupRequestProtocol(name="range", metadata=subscription("first")),
        JoinGroupRequestProtocol(name="range", metadata=subscription("second")),
    ]
    response = join(calls, 9, protocols=named_twice)
    assert response.error_code == 0
    assert response.members[0].metadata == subscription("first")


@pytest.mark.parametrize("version", range(10))
def test_no_protocol_is_null_or_empty(calls: Calls, version: int) -> None:
    response = calls.call(join_request("nobody"), version, JoinGroupResponse)
    assert response.error_code == 25
    assert response.protocol_name == (None if version >= 7 else "")
    assert (response.member_id, response.generation_id, response.leader) == ("nobody", -1, "")


def test_version_0_takes_the_session_timeout_for_the_rebalance(calls: Calls) -> None:
    first = calls.start(join_request(), 0)
    calls.site.clock.advance(2_000)
    calls.start(join_request(), 0)
    calls.site.clock.advance(1_500)
    # Without a rebalance timeout the initial delay could not be prolonged.
    assert not first.done
    calls.site.clock.advance(3_000)
    assert first.done


@pytest.mark.parametrize(
    ("fields", "error"),
    [({"group_id": ""}, 24), ({"session_timeout_ms": 1}, 26), ({"protocols": []}, 23)],
)
def test_join_refused(calls: Calls, fields: dict[str, object], error: int) -> None:
    assert calls.call(join_request(**fields), 9, JoinGroupResponse).error_code == error  # type: ignore[arg-type]


def test_join_without_a_coordinator(calls_without_topic: Calls) -> None:
    response = calls_without_topic.call(join_request("m"), 9, JoinGroupResponse)
    assert (response.error_code, response.member_id) == (16, "")


@pytest.mark.parametrize("version", range(6))
def test_sync_in_every_version(calls: Calls, version: int) -> None:
    member_id = join(calls, 3).member_id
    request = SyncGroupRequest(group_id="g", generation_id=1, member_id=member_id, assignments=[])
    if version >= 5:
        assert calls.call(request, version, SyncGroupResponse).error_code == 23
        request.protocol_type, request.protocol_name = "consumer", "range"
    response = calls.call(request, version, SyncGroupResponse)
    assert response.error_code == 0
    assert response.protocol_name == ("range" if version >= 5 else None)
    request.generation_id = 2
    assert calls.call(request, version, SyncGroupResponse).error_code == 22
    request.group_id = ""
    assert calls.call(request, version, SyncGroupResponse).error_code == 24


@pytest.mark.parametrize("version", range(5))
def test_heartbeat_in_every_version(calls: Calls, version: int) -> None:
    member_id = join(calls, 3).member_id
    request = HeartbeatRequest(group_id="g", generation_id=1, member_id=member_id)
    assert calls.call(request, version, HeartbeatResponse).error_code == 0
    request.member_id = "nobody"
    assert calls.call(request, version, HeartbeatResponse).error_code == 25
    request.group_id = ""
    assert calls.call(request, version, HeartbeatResponse).error_code == 24


def test_a_heartbeat_succeeds_while_the_coordinator_loads(calls: Calls) -> None:
    member_id = join(calls, 3).member_id
    calls.site.groups.stop()
    calls.site.offload.held = True
    request = HeartbeatRequest(group_id="g", generation_id=1, member_id=member_id)
    assert calls.call(request, 4, HeartbeatResponse).error_code == 0
    calls.site.offload.held = False
    calls.site.offload.release()


@pytest.mark.parametrize("version", range(3))
def test_one_leaves(calls: Calls, version: int) -> None:
    member_id = join(calls, 3).member_id
    request = LeaveGroupRequest(group_id="g", member_id=member_id)
    assert calls.call(request, version, LeaveGroupResponse).error_code == 0
    assert calls.call(request, version, LeaveGroupResponse).error_code == 25
    assert (
        calls.call(LeaveGroupRequest(group_id="unknown"), version, LeaveGroupResponse).error_code
        == 25
    )


@pytest.mark.parametrize("version", [3, 4, 5])
def test_several_leave(calls: Calls, version: int) -> None:
    member_id = join(calls, 3).member_id
    members = [MemberIdentity(member_id=member_id), MemberIdentity(member_id="nobody")]
    request = LeaveGroupRequest(group_id="g", members=members)
    response = calls.call(request, version, LeaveGroupResponse)
    assert response.error_code == 0
    assert [(m.member_id, m.error_code) for m in response.members] == [
        (member_id, 0),
        ("nobody", 25),
    ]
    request.group_id = ""
    response = calls.call(request, version, LeaveGroupResponse)
    assert (response.error_code, response.members) == (24, [])
