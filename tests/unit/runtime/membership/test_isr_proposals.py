"""Proposals of ISRs on their way to the controller: many in one request, one request at a time."""

from __future__ import annotations

import pytest
from tests.unit.runtime.cluster_site import Member, Site, three
from tests.unit.runtime.membership.channels import Wire, channel_of

from millstream.model.broker import BrokerId
from millstream.model.deferred import Deferred
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.leadership import IsrMember, PartitionState
from millstream.model.topic import TopicPartition
from millstream.protocol.messages.propose_isr import ProposeIsrRequest
from millstream.runtime.membership.isr_proposals import IsrProposals
from millstream.runtime.replicas.isr_updates import IsrProposal


def proposals_of(member: Member) -> tuple[IsrProposals, Wire]:
    channel, wire = channel_of(member)
    replicas = member.decisions.replicas
    return IsrProposals(channel, replicas, member.local, member.site.clock), wire


def proposal(site: Site, leader: int, topic: str, *isr: int) -> IsrProposal:
    image = site.members[leader].local.cache.topic(topic)
    assert image is not None
    state = image.partitions[0]
    members = [
        IsrMember(BrokerId(each), site.members[each].local.broker_epoch or 0) for each in isr
    ]
    return IsrProposal(
        image.topic_id,
        TopicPartition(topic, 0),
        state.leader_epoch,
        state.partition_epoch,
        tuple(members),
    )


def refused(outcome: Deferred[PartitionState]) -> ErrorCode:
    with pytest.raises(KafkaError) as error:
        outcome.result()
    return error.value.error


def test_the_controller_on_this_broker_decides_without_a_message() -> None:
    site = three()
    site.create("t", (1, 2, 3))
    proposals, wire = proposals_of(site.members[1])
    decided = proposals.propose(proposal(site, 1, "t", 1, 2))
    site.settle()
    assert decided.result().isr == (1, 2)
    assert wire.sent == []


def test_what_is_proposed_while_a_request_is_under_way_leaves_together() -> None:
    site = three()
    for name in ("t", "u", "v"):
        site.create(name, (2, 1, 3))
    proposals, wire = proposals_of(site.members[2])
    outcomes = [proposals.propose(proposal(site, 2, "t", 2, 1))]
    site.clock.settle()
    outcomes += [proposals.propose(proposal(site, 2, name, 2, 1)) for name in ("u", "v")]
    site.clock.settle()
    assert len(wire.sent) == 1
    site.settle()
    counts = [len(each.partitions) for each in wire.sent if isinstance(each, ProposeIsrRequest)]
    assert counts == [1, 2]
    assert all(outcome.done for outcome in outcomes)


@pytest.mark.parametrize(
    ("failure", "known"),
    [
        (ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.OPERATION_NOT_ATTEMPTED),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.REQUEST_TIMED_OUT),
    ],
)
def test_what_never_left_was_not_attempted_and_of_the_rest_nobody_knows(
    failure: ErrorCode, known: ErrorCode
) -> None:
    site = three()
    site.create("t", (2, 1, 3))
    proposals, wire = proposals_of(site.members[2])
    wire.failure = failure
    outcome = proposals.propose(proposal(site, 2, "t", 2, 1))
    site.settle()
    assert refused(outcome) is known


def test_without_a_registration_or_a_controller_nothing_is_attempted() -> None:
    site = three()
    site.create("t", (2, 1, 3))
    member = site.members[2]
    wanted = proposal(site, 2, "t", 2, 1)
    proposals, wire = proposals_of(member)
    epoch, member.local.broker_epoch = member.local.broker_epoch, None
    unregistered = proposals.propose(wanted)
    site.clock.settle()
    assert refused(unregistered) is ErrorCode.OPERATION_NOT_ATTEMPTED
    member.local.broker_epoch = epoch
    member.local.cache.controller_id = BrokerId(-1)
    unknown = proposals.propose(wanted)
    site.clock.settle()
    assert refused(unknown) is ErrorCode.OPERATION_NOT_ATTEMPTED
    assert wire.sent == []
