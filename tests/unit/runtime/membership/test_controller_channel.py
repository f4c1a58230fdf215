"""Requests to the controller: here, on another broker, and where there is none."""

from __future__ import annotations

import pytest
from tests.unit.runtime.cluster_site import Member, Site, three
from tests.unit.runtime.membership.channels import channel_of

from millstream.model.broker import BrokerId
from millstream.model.deferred import Deferred
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.topic import TopicPartition
from millstream.protocol.messages.metadata import MetadataRequest
from millstream.runtime.membership.controller_channel import FORWARD_TIMEOUT_MS


def refused(outcome: Deferred[object]) -> ErrorCode:
    with pytest.raises(KafkaError) as error:
        outcome.result()
    return error.value.error


@pytest.mark.parametrize("number", [1, 2])
def test_a_topic_that_is_needed_is_created_by_the_controller_wherever_it_is(number: int) -> None:
    site = three()
    channel, wire = channel_of(site.members[number])
    ensured = channel.ensure_topic("new")
    site.settle()
    assert ensured.result() is site.members[number].local.cache.topic("new")
    assert len(wire.sent) == (0 if number == 1 else 1)
    assert channel.ensure_topic("new").result().name == "new"


def test_a_topic_is_asked_for_again_until_a_controller_answers() -> None:
    site = three()
    channel, wire = channel_of(site.members[2])
    wire.failure = ErrorCode.NETWORK_EXCEPTION
    ensured = channel.ensure_topic("new")
    site.settle(5_000)
    assert not ensured.done
    wire.failure = None
    site.settle()
    assert ensured.result().name == "new"


def test_a_topic_is_not_asked_for_for_ever_nor_again_where_it_is_refused() -> None:
    site = three()
    channel, wire = channel_of(site.members[2])
    wire.failure = ErrorCode.NOT_CONTROLLER
    late = channel.ensure_topic("new")
    site.settle(FORWARD_TIMEOUT_MS + 1_000)
    assert refused(late) is ErrorCode.NOT_CONTROLLER
    wire.failure = ErrorCode.INVALID_REPLICATION_FACTOR
    wire.sent.clear()
    never = channel.ensure_topic("new")
    site.settle()
    assert refused(never) is ErrorCode.INVALID_REPLICATION_FACTOR
    assert len(wire.sent) == 1


@pytest.mark.parametrize("number", [1, 2])
def test_replicas_that_cannot_be_served_are_reported_to_the_controller(number: int) -> None:
    site = three()
    site.create("t", (number, 3))
    image = site.members[number].local.cache.topic("t")
    assert image is not None
    channel, _ = channel_of(site.members[number])
    site.wait(channel.report_offline([(image.topic_id, 0)]))
    site.settle()
    assert site.members[2].state("t").leader == 3


def test_a_report_of_a_registration_that_has_ended_is_refused() -> None:
    site = three()
    member = site.members[2]
    channel, _ = channel_of(member)
    member.local.broker_epoch = 1
    report = channel.report_offline([])
    site.settle()
    assert refused(report) is ErrorCode.STALE_BROKER_EPOCH


@pytest.mark.parametrize("number", [1, 2])
def test_a_broker_that_stops_is_told_what_nobody_else_can_lead(number: int) -> None:
    site = three()
    site.create("t", (number, 3))
    site.create("alone", (number,))
    channel, _ = channel_of(site.members[number])
    moved = channel.stop_leading()
    site.settle()
    assert moved.result() == [TopicPartition("alone", 0)]
    assert site.members[3].state("t").leader == 3


def test_requests_of_clients_are_forwarded_to_another_broker_only() -> None:
    site = three()
    channel, wire = channel_of(site.members[1])
    assert refused(channel.forward(MetadataRequest(topics=None), 12)) is ErrorCode.NOT_CONTROLLER
    follower, wire = channel_of(site.members[2])
    wire.failure = ErrorCode.NETWORK_EXCEPTION
    forwarded = follower.forward(MetadataRequest(topics=None), 12)
    site.settle()
    assert refused(forwarded) is ErrorCode.NETWORK_EXCEPTION
    assert len(wire.forwarded) == 1
    site.members[2].local.cache.controller_id = BrokerId(-1)
    assert refused(follower.forward(MetadataRequest(topics=None), 12)) is ErrorCode.NOT_CONTROLLER


def test_who_takes_itself_for_the_controller_and_is_not_says_so() -> None:
    site = Site()
    member: Member = site.add(1)
    channel, _ = channel_of(member)
    member.controller_state.end_term()
    assert refused(channel.stop_leading()) is ErrorCode.NOT_CONTROLLER
    assert refused(channel.report_offline([])) is ErrorCode.NOT_CONTROLLER
