"""Entities in a cluster: who decides, who is told, what outlives a controller."""

from __future__ import annotations

import pytest
from tests.memory_metadata_store import Loss
from tests.unit.runtime.cluster_site import Member, Site, three

from millstream.controller import entity_changes
from millstream.model.broker import BrokerId
from millstream.model.deferred import Deferred
from millstream.model.entities import EntityChanges, EntityKind, EntityValue
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.metadata_store import Create, SetData
from millstream.protocol.message import Request, Response
from millstream.protocol.messages.push_metadata import PushMetadataRequest
from millstream.runtime.controlling import entity_pushes

USER, ACL = EntityKind.USER, EntityKind.ACL
ONE: EntityValue = {"producer_byte_rate": "1"}


def change(site: Site, kind: EntityKind, changes: EntityChanges) -> None:
    done = site.controller.decisions.change_entities(kind, lambda _: changes)
    site.wait(done)


def known(site: Site, kind: EntityKind = USER) -> list[dict[str, EntityValue]]:
    return [dict(each.local.cache.entities.all(kind)) for each in site.members.values()]


class Pushes:
    """What a member is pushed from now on."""

    def __init__(self, member: Member) -> None:
        self.requests: list[PushMetadataRequest] = []
        serve = member.serve

        def recording(request: Request) -> Response:
            if isinstance(request, PushMetadataRequest):
                self.requests.append(request)
            return serve(request)

        member.serve = recording  # type: ignore[method-assign]

    @property
    def entities(self) -> list[int]:
        return [len(each.entities or ()) for each in self.requests if each.entities]


def test_a_change_reaches_every_broker() -> None:
    site = three()
    heard: list[str] = []
    site.members[3].local.cache.entities.watch(USER, heard.extend)
    change(site, USER, {"ann": ONE, "bob": ONE})
    site.settle()
    assert known(site) == [{"ann": ONE, "bob": ONE}] * 3
    assert sorted(heard) == ["ann", "bob"]
    change(site, USER, {"ann": None})
    site.settle()
    assert known(site) == [{"bob": ONE}] * 3


def test_only_what_changed_is_pushed() -> None:
    site = three()
    change(site, USER, {f"user-{i:03}": ONE for i in range(500)})
    site.settle()
    pushes = Pushes(site.members[2])
    change(site, USER, {"user-001": None, "new": ONE})
    site.settle(10_000)
    assert pushes.entities == [2]
    assert not any(each.entity_ranges for each in pushes.requests)


def test_a_decision_sees_what_the_one_before_it_left() -> None:
    site = three()
    decisions = site.controller.decisions

    def count(present: EntityChanges) -> EntityChanges:
        before = present.get("n")
        return {"n": {"x": str(int((before or {"x": "0"})["x"]) + 1)}}

    for outcome in [decisions.change_entities(USER, count) for _ in range(5)]:
        site.wait(outcome)
    site.settle()
    assert known(site) == [{"n": {"x": "5"}}] * 3


def test_what_a_decision_raises_is_its_outcome() -> None:
    site = three()

    def refuse(_: object) -> EntityChanges:
        raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, "no such user")

    refused = site.controller.decisions.change_entities(USER, refuse)
    with pytest.raises(KafkaError, match="no such user"):
        site.wait(refused)
    follower = next(each for each in site.members.values() if not each.is_controller)
    elsewhere = follower.decisions.change_entities(USER, lambda _: {"a": ONE})
    with pytest.raises(KafkaError, match="NOT_CONTROLLER"):
        site.wait(elsewhere)


def test_limits_are_the_controllers(monkeypatch: pytest.MonkeyPatch) -> None:
    site = three()
    monkeypatch.setattr(entity_changes, "MAX_ENTITIES", 1)
    refused = site.controller.decisions.change_entities(USER, lambda _: {"a": ONE, "b": ONE})
    with pytest.raises(KafkaError, match="POLICY_VIOLATION"):
        site.wait(refused)
    site.settle()
    assert known(site) == [{}] * 3


def test_the_next_controller_has_everything() -> None:
    site = three()
    change(site, USER, {"ann": ONE})
    change(site, ACL, {"Topic/literal/t": {"Allow Read * User:ann": ""}})
    site.members[1].kill()
    site.settle()
    change(site, USER, {"bob": ONE})
    site.settle()
    for number in (2, 3):
        entities = site.members[number].local.cache.entities
        assert dict(entities.all(USER)) == {"ann": ONE, "bob": ONE}
        assert list(entities.all(ACL)) == ["Topic/literal/t"]


def test_a_change_that_nobody_heard_of_is_told_by_the_next_controller() -> None:
    site = three()
    change(site, USER, {"ann": ONE, "bob": ONE})
    site.settle()
    first = site.members[1]
    first.cut_from = {2, 3}
    change(site, USER, {"ann": None, "eve": ONE})
    assert dict(site.members[2].local.cache.entities.all(USER)) == {"ann": ONE, "bob": ONE}
    first.kill()
    site.settle(3_000)
    for number in (2, 3):
        assert dict(site.members[number].local.cache.entities.all(USER)) == {"bob": ONE, "eve": ONE}


def test_a_change_whose_answer_was_lost_holds() -> None:
    site = three()
    site.controller.store.losses.append(Loss(applied=True))
    change(site, USER, {"ann": ONE})
    site.settle()
    assert known(site) == [{"ann": ONE}] * 3


def test_a_broker_that_comes_late_is_told_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entity_pushes, "MAX_ENTITIES", 7)
    site = Site()
    site.add(1)
    users = {f"user-{i:03}": ONE for i in range(50)}
    change(site, USER, users)
    change(site, ACL, {f"Topic/literal/t{i}": {"Allow Read * User:a": ""} for i in range(10)})
    late = Member(site, 2)
    site.members[2] = late
    stale = {"user-0015": ONE, "zed": ONE, "user-003": {"x": "old"}}
    late.local.change_entities(USER, stale)
    late.local.change_entities(EntityKind.IP, {"10.0.0.1": ONE})
    pushes = Pushes(late)
    late.start()
    site.settle()
    assert dict(late.local.cache.entities.all(USER)) == users
    assert len(late.local.cache.entities.all(ACL)) == 10
    assert not late.local.cache.entities.all(EntityKind.IP)
    assert max(pushes.entities) == 7
    assert sum(pushes.entities) == 60
    pushes.requests.clear()
    site.settle(10_000)
    assert not pushes.entities, "what was acknowledged is not sent again"


def test_parts_that_are_lost_are_told_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entity_pushes, "MAX_ENTITIES", 7)
    site = Site()
    first = site.add(1)
    users = {f"user-{i:03}": ONE for i in range(50)}
    change(site, USER, users)
    late = Member(site, 2)
    site.members[2] = late
    sends = [0]
    send = first.cluster_controller._pushes._send

    def unreliable(to: BrokerId, request: Request, timeout_ms: float) -> Deferred[Response]:
        sends[0] += 1
        if sends[0] % 3:
            return send(to, request, timeout_ms)
        lost: Deferred[Response] = Deferred()
        send(to, request, timeout_ms)  # it arrives, and its answer does not
        site.clock.call_later(5, lambda: lost.fail(KafkaError(ErrorCode.NETWORK_EXCEPTION)))
        return lost

    first.cluster_controller._pushes._send = unreliable
    late.start()
    change(site, USER, {"user-003": None, "another": ONE})
    site.settle(20_000)
    expected = {**users, "another": ONE}
    del expected["user-003"]
    assert dict(late.local.cache.entities.all(USER)) == expected


def test_entities_that_cannot_be_read_are_not_changed() -> None:
    site = three()
    change(site, ACL, {"Topic/literal/t": {"Allow Read * User:ann": ""}})
    site.settle()
    path = "/kafka-acl/Topic/t"
    site.tree.multi([SetData(path, b"{")], site.tree.new_session())
    site.members[1].kill()
    site.settle(2_000)
    refused = site.controller.decisions.change_entities(USER, lambda _: {"a": ONE})
    with pytest.raises(KafkaError, match="cannot be read"):
        site.wait(refused)
    assert list(site.members[2].local.cache.entities.all(ACL)) == ["Topic/literal/t"]


def test_the_store_is_read_again_when_it_was_out_of_reach() -> None:
    site = Site()
    member = site.add(1)
    change(site, USER, {"ann": ONE})
    member.store.expire()
    site.settle(3_000)
    change(site, USER, {"bob": ONE})
    assert set(member.local.cache.entities.all(USER)) == {"ann", "bob"}


def test_many_entities_are_written_in_parts() -> None:
    site = three()
    value = {"x": "1" * 1_000}
    writes = site.tree.writes
    change(site, USER, {f"user-{i:04}": value for i in range(2_000)})
    site.settle()
    assert site.tree.writes - writes > 2, "no store takes two megabytes at once"
    assert [len(each) for each in known(site)] == [2_000] * 3


def test_a_node_of_ours_that_is_there_already_ends_the_term() -> None:
    """Somebody else wrote to the store: what the controller knows is not true any more."""
    site = three()
    site.tree.multi([Create("/config/users/ann", b"")], site.tree.new_session())
    refused = site.controller.decisions.change_entities(USER, lambda _: {"ann": ONE})
    with pytest.raises(KafkaError, match="NOT_CONTROLLER"):
        site.wait(refused)
    site.settle()
    change(site, USER, {"ann": ONE})
    site.settle()
    assert known(site) == [{"ann": ONE}] * 3
