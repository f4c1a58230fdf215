"""Leaderships leave a broker before it stops: what ends that, and how long it may take."""

from __future__ import annotations

import logging

import pytest
from tests.unit.runtime.cluster_site import Member, three
from tests.unit.runtime.membership.channels import Wire, channel_of

from millstream.model.errors import ErrorCode
from millstream.runtime.membership.controlled_shutdown import (
    HAND_OVER_MS,
    STOP_LEADING_MS,
    ControlledShutdown,
)


def shutdown_of(member: Member) -> tuple[ControlledShutdown, Wire]:
    channel, wire = channel_of(member)
    shutdown = ControlledShutdown(
        channel,
        member.local,
        member.site.clock,
        is_propagating=lambda: member.cluster_controller.is_propagating,
    )
    return shutdown, wire


@pytest.mark.parametrize("number", [1, 2])
def test_it_ends_when_everybody_has_been_told_of_the_new_leaders(number: int) -> None:
    site = three()
    site.create("t", (number, 3))
    shutdown, _ = shutdown_of(site.members[number])
    done = shutdown.run()
    assert not done.done
    site.settle(100)
    assert done.done
    assert site.members[number].state("t").leader == 3
    assert site.members[3].state("t").leader == 3


def test_it_looks_for_a_controller_for_a_while_and_logs_that_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "millstream.runtime.membership.controlled_shutdown")
    site = three()
    site.create("t", (2, 3))
    shutdown, wire = shutdown_of(site.members[2])
    wire.failure = ErrorCode.BROKER_NOT_AVAILABLE
    done = shutdown.run()
    site.settle(STOP_LEADING_MS - 500)
    assert not done.done
    assert len(caplog.records) == 1
    site.settle(1_000)
    assert done.done


def test_brokers_that_are_not_told_do_not_hold_it_up_for_long() -> None:
    site = three()
    site.create("t", (1, 3))
    site.members[1].cut_from = {3}
    shutdown, _ = shutdown_of(site.members[1])
    done = shutdown.run()
    site.settle(HAND_OVER_MS - 200)
    assert not done.done
    site.settle(400)
    assert done.done


def test_a_broker_without_a_registration_has_nothing_to_move() -> None:
    site = three()
    site.members[2].local.broker_epoch = None
    shutdown, wire = shutdown_of(site.members[2])
    assert shutdown.run().done
    assert wire.sent == []
