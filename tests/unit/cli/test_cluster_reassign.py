"""What `millstream cluster reassign` says of a plan that cannot be."""

from __future__ import annotations

import pytest

from millstream.cli.arguments import UsageError
from millstream.cli.cluster_reassign import _plan, _tell_crowded, _that_fit
from millstream.cli.failures import CommandFailedError
from millstream.client.metadata import Broker
from millstream.client.replicas import ClusterView, Replicas
from millstream.client.settings import Address
from millstream.model.topic import TopicPartition


def replicas(topic: str, *ids: int, size: int = 0) -> Replicas:
    return Replicas(
        topic_partition=TopicPartition(topic, 0),
        leader=ids[0],
        replicas=ids,
        isr=ids,
        elr=(),
        last_known_elr=(),
        min_insync_replicas=1,
        lag={},
        size_bytes=size,
    )


def view(*partitions: Replicas, live: tuple[int, ...] = (), free: int = 0) -> ClusterView:
    return ClusterView(
        cluster_id="cluster",
        controller_id=1,
        brokers={each: Broker(each, Address("h", each), None) for each in live},
        partitions=partitions,
        free_bytes=dict.fromkeys(live, free),
    )


def test_too_few_brokers_name_the_option_that_helps() -> None:
    partition = replicas("t", 1, 2)
    with pytest.raises(UsageError, match=r"2 replicas .*; --replication-factor 1 lowers it"):
        _plan(view(partition), [partition], [1], None)
    with pytest.raises(UsageError, match=r"brokers$"):
        _plan(view(partition), [partition], [1], 2)


def test_with_a_broker_down_what_fits_is_planned_and_the_rest_is_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    wide, narrow = replicas("wide", 1, 2, 3), replicas("narrow", 3)
    chosen = _that_fit([wide, narrow], 2)
    assert chosen == [narrow]
    assert capsys.readouterr().err == (
        "millstream: left where they are, with more replicas than the 2 brokers alive can keep: "
        "wide (--replication-factor 2 lowers them)\n"
    )
    plan, _ = _plan(view(wide, narrow, live=(1, 2)), chosen, [1, 2], None)
    assert plan.keys() == {narrow.topic_partition}
    assert _that_fit([wide], 2) == [wide], "where none fits the plan says so"


def test_what_the_disks_have_no_room_for_is_told_and_not_moved(
    capsys: pytest.CaptureFixture[str],
) -> None:
    big = replicas("big", 1, size=5_000)
    crowded = view(big, live=(1, 2), free=3_000)
    plan = {big.topic_partition: (2,)}
    _tell_crowded(crowded, plan, refuses=False)
    told = "broker 2 would get 5.0 kB, and its disks have 3.0 kB left"
    assert told in capsys.readouterr().err
    with pytest.raises(CommandFailedError, match="no room"):
        _tell_crowded(crowded, plan, refuses=True)
    _tell_crowded(view(big, live=(1, 2), free=5_000), plan, refuses=True)
    assert capsys.readouterr().err.count(told) == 1
