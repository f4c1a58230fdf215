"""A leader that may have been replaced hands out no records: another one may by now."""

from __future__ import annotations

from typing import cast

from tests.unit.handlers.share_broker import CoordinatorTwin
from tests.unit.runtime.replica_site import TOPIC, TOPIC_ID, ClusterSite

from millstream.config.offset_reset import OffsetReset
from millstream.model.deferred import Deferred
from millstream.model.errors import ErrorCode
from millstream.runtime.share.dead_letter_topics import DeadLetterTopics
from millstream.runtime.share.persister import SharePersister
from millstream.runtime.share.share_fetch import (
    FetchedSharePartition,
    ShareFetch,
    ShareFetchParams,
)
from millstream.runtime.share.share_partitions import SharePartitions
from millstream.runtime.share.share_settings import ShareGroupSettings
from millstream.share.state import SharePartitionKey

KEY = SharePartitionKey("g", TOPIC_ID, 0)


class Site(ClusterSite):
    """A share group that reads a topic of three brokers, which broker 1 leads."""

    def __init__(self) -> None:
        super().__init__()
        self[1].produce(b"a")
        self.settle()
        settings = ShareGroupSettings(offset_reset=OffsetReset.EARLIEST)
        self.coordinator = CoordinatorTwin()
        self.shares = SharePartitions(
            clock=self.clock,
            partitions=self[1].partitions,
            persister=cast("SharePersister", self.coordinator),
            settings_of=lambda _: settings,
            dead_letters=cast("DeadLetterTopics", None),
            max_sessions=lambda: 10,
        )

    def lease(self, milliseconds: float) -> None:
        replicas = self[1].partitions.replicas
        assert replicas is not None
        until_ms = self.clock.monotonic_ms() + milliseconds
        replicas.context.lease_ms = lambda: until_ms - self.clock.monotonic_ms()

    def unfollowed(self) -> None:
        """Let the followers fetch no more, for long enough to notice."""
        self.cut_off(1)
        self.advance(5_000)

    def fetch(self, max_wait_ms: int = 0) -> Deferred[list[FetchedSharePartition]]:
        params = ShareFetchParams(
            "g",
            "m1",
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=1 << 20,
            max_records=500,
            batch_size=500,
        )
        return ShareFetch(self.shares, params, [KEY]).start()

    @property
    def in_flight(self) -> int:
        machine = self.shares.find_or_load(KEY).machine
        assert machine is not None
        return len(machine.in_flight)


def test_a_leader_without_its_lease_hands_out_no_records() -> None:
    site = Site()
    site.unfollowed()
    site.lease(0)
    (refused,) = site.fetch().result()
    assert refused.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (refused.records, refused.acquired, site.in_flight) == (None, (), 0)
    site.lease(1_000)
    (fetched,) = site.fetch().result()
    assert (fetched.error, list(fetched.acquired)) == (ErrorCode.NONE, [(0, 0, 1)])


def test_a_leader_whom_all_followed_a_moment_ago_hands_out_nothing_without_its_lease() -> None:
    """It may be read; but one that leads by now may have taken acknowledgements of the records."""
    site = Site()
    site.lease(0)
    partition = site[1].partitions.get(TOPIC, 0)
    assert partition.refusal_to_read() is None
    (refused,) = site.fetch().result()
    assert (refused.error, refused.acquired) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, ())
    assert site.in_flight == 0


def test_a_leader_without_its_lease_refuses_before_it_has_read_a_state() -> None:
    site = Site()
    site.coordinator.is_held = True
    site.lease(0)
    refused = site.fetch(max_wait_ms=5_000)
    assert refused.done
    assert [each.error for each in refused.result()] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_a_fetch_that_waits_hands_out_nothing_for_a_lease_that_has_ended() -> None:
    site = Site()
    (fetched,) = site.fetch().result()
    assert list(fetched.acquired) == [(0, 0, 1)]
    site.unfollowed()
    site.lease(1_000)
    waiting = site.fetch(max_wait_ms=5_000)
    site.advance(4_999)
    assert not waiting.done
    site.advance(1)
    (refused,) = waiting.result()
    assert (refused.error, refused.acquired) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, ())
