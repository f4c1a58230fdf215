"""Replicas that catch up under a rate limit: what is held back, what never is, what counts."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.runtime.replica_site import LAG_MS, ClusterSite

from millstream.config.topic import TopicConfig
from millstream.model.broker import BrokerId
from millstream.model.errors import ErrorCode
from millstream.runtime.replicas.fetch_sessions import FetchContext

LEADER = "leader.replication.throttled"
FOLLOWER = "follower.replication.throttled"
RATE = 20_000
BATCH = 10_000
BACKLOG = 50


def limited(site: ClusterSite, broker: int, *, rate: int = RATE, side: str) -> None:
    """Set one broker's limit as a dynamic setting."""
    site[broker].config.update(of_all_brokers={}, of_this_broker={f"{side}.rate": str(rate)})


def name_replicas(site: ClusterSite, **texts: str) -> None:
    """Name the replicas of the topic that are under the limits, and tell every broker."""
    site.config = TopicConfig(
        {"min.insync.replicas": "1"}
        | {f"{side}.replication.throttled.replicas": text for side, text in texts.items()}
    )
    site.push()
    site.settle()


def fall_behind(site: ClusterSite, broker: int = 3) -> None:
    """Let one broker leave the ISR and miss a backlog, and come back until its first fetch."""
    site.cut_off(broker)
    site[1].produce(b"first", acks=1)
    site.advance(2 * LAG_MS)
    assert broker not in site.isr
    for _ in range(BACKLOG):
        site[1].produce(b"x" * BATCH, acks=1)
    site.settle()
    site.heal()
    missed = site[broker].end
    while site[broker].end <= missed:
        site.advance(100)


def seconds_to_catch_up(site: ClusterSite, broker: int = 3) -> int:
    for second in range(300):
        if site[broker].end == site[1].end:
            return second
        site.advance(1000)
    raise AssertionError("it never caught up")


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_a_replica_that_catches_up_keeps_to_the_rate(side: str) -> None:
    site = ClusterSite(replica_fetch_max_bytes=str(2 * BATCH))
    limited(site, 1 if side == "leader" else 3, side=f"{side}.replication.throttled")
    name_replicas(site, **{side: "*"})
    fall_behind(site)
    seconds = seconds_to_catch_up(site)
    assert seconds >= 0.8 * BACKLOG * BATCH / RATE
    assert seconds <= 2 * BACKLOG * BATCH / RATE
    site.advance(LAG_MS)
    assert site.isr == (1, 2, 3)
    assert site[3].values() == site[1].values()


@pytest.mark.parametrize(
    ("side", "broker", "texts"),
    [
        ("leader", 1, {"leader": "0:2,0:3", "follower": "*"}),
        ("follower", 3, {"follower": "0:1,0:2", "leader": "*"}),
        ("leader", 3, {"leader": "*"}),
        ("follower", 1, {"follower": "*"}),
    ],
)
def test_a_replica_that_is_not_named_is_not_held_back(
    side: str, broker: int, texts: dict[str, str]
) -> None:
    """The leader looks for its own id in its list, the follower for its own in the other."""
    site = ClusterSite(replica_fetch_max_bytes=str(2 * BATCH))
    limited(site, broker, side=f"{side}.replication.throttled")
    name_replicas(site, **texts)
    fall_behind(site)
    assert seconds_to_catch_up(site) < 5


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_the_own_replica_may_be_named_by_its_number(side: str) -> None:
    broker = 1 if side == "leader" else 3
    site = ClusterSite(replica_fetch_max_bytes=str(2 * BATCH))
    limited(site, broker, side=f"{side}.replication.throttled")
    name_replicas(site, **{side: f"7:9,0:{broker}"})
    fall_behind(site)
    assert seconds_to_catch_up(site) > 10


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_replicas_in_sync_are_never_held_back(side: str) -> None:
    site = ClusterSite()
    for broker in (1, 2, 3):
        limited(site, broker, rate=1, side=f"{side}.replication.throttled")
    name_replicas(site, leader="*", follower="*")
    for _ in range(20):
        produced = site[1].produce(b"x" * BATCH)
        site.settle()
        assert produced.done
        assert produced.error is ErrorCode.NONE
    site.advance(3 * LAG_MS)
    assert site.isr == (1, 2, 3)


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_a_limit_may_be_lifted_while_a_replica_waits(side: str) -> None:
    site = ClusterSite(replica_fetch_max_bytes=str(2 * BATCH))
    broker = 1 if side == "leader" else 3
    limited(site, broker, rate=1000, side=f"{side}.replication.throttled")
    name_replicas(site, **{side: "*"})
    fall_behind(site)
    site.advance(5000)
    assert site[3].end < site[1].end
    site[broker].config.update(of_all_brokers={}, of_this_broker={})
    assert seconds_to_catch_up(site) < 5


def test_a_limit_of_all_brokers_counts_where_a_broker_has_none_of_its_own() -> None:
    site = ClusterSite(replica_fetch_max_bytes=str(2 * BATCH))
    site[1].config.update(of_all_brokers={f"{LEADER}.rate": str(RATE)}, of_this_broker={})
    name_replicas(site, leader="*")
    fall_behind(site)
    assert seconds_to_catch_up(site) > 10


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_other_partitions_of_the_same_fetch_go_on(side: str) -> None:
    """What is held back neither keeps a fetch from ending nor ends it in a circle."""
    site = ClusterSite(replica_fetch_max_bytes=str(2 * BATCH))
    broker = 1 if side == "leader" else 3
    limited(site, broker, rate=100, side=f"{side}.replication.throttled")
    name_replicas(site, **{side: "*"})
    fall_behind(site)
    site.advance(3000)
    held_at = site[3].end
    config, site.config = site.config, TopicConfig({"min.insync.replicas": "1"})
    site.create("other")
    site.settle()
    site.advance(1000)
    for _ in range(10):
        produced = site[1].produce(b"y", topic="other")
        site.advance(1000)
        assert produced.done
        assert produced.error is ErrorCode.NONE
    site.config = config
    followed = site[3].partitions.replica("other", 0)
    assert followed is not None
    assert followed.log.log_end_offset == 10
    assert site[3].end - held_at < 10
    assert site[3].end < site[1].end


def test_held_back_records_do_not_end_a_fetch_before_its_time() -> None:
    site = ClusterSite(replica_fetch_max_bytes=str(2 * BATCH))
    limited(site, 1, rate=100, side=LEADER)
    name_replicas(site, leader="*")
    fall_behind(site)
    site.advance(1000)
    held_at = site[3].end
    fetches = 0
    opened = site[1].services.fetch_sessions.open

    def counting(*arguments: Any) -> FetchContext:
        nonlocal fetches
        fetches += 1
        return opened(*arguments)

    site[1].services.fetch_sessions.open = counting  # type: ignore[method-assign]
    site.advance(5_000)
    assert site[3].end == held_at
    # Two followers, each waiting for half a second (`replica.fetch.wait.max.ms`).
    assert 0 < fetches <= 2 * 5_000 / 500 + 2


def test_one_in_sync_follows_a_new_leader_at_once() -> None:
    """How far it is behind it cannot know before the first answer; the ISR says that it is not."""
    site = ClusterSite()
    limited(site, 3, rate=1, side=FOLLOWER)
    name_replicas(site, follower="*")
    site[1].produce(b"x" * BATCH)
    site.advance(1000)
    site.controller.elect(2)
    site.settle()
    produced = site[2].produce(b"y")
    site.advance(1000)
    assert produced.done
    assert produced.error is ErrorCode.NONE


def test_one_that_lacks_nothing_is_not_kept_out_of_the_isr() -> None:
    site = ClusterSite()
    limited(site, 3, rate=1, side=FOLLOWER)
    name_replicas(site, follower="*")
    site[1].produce(b"x" * BATCH)
    site.advance(1000)
    site.controller.write(isr=(BrokerId(1), BrokerId(2)))
    site.push()
    site.settle()
    site.advance(1000)
    assert site.isr == (1, 2, 3)
