"""Sessions over many partitions of which few move: what is skipped, and what must not be."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.runtime.replica_site import TOPIC, TOPIC_ID, ClusterSite, Link, joined

from millstream.model.errors import ErrorCode
from millstream.model.topic import TopicId
from millstream.protocol.api import ApiKey
from millstream.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from millstream.protocol.outgoing import Outgoing
from millstream.runtime.replicas.partition import Partition
from millstream.runtime.replicas.partition_requests import delete_records_before
from millstream.storage.log import LogRead

OTHERS = [f"quiet-{number}" for number in range(20)]


class Consumer:
    """Fetches several topics in one session, without waiting."""

    def __init__(self, site: ClusterSite, *topics: TopicId, leader_epoch: int = -1) -> None:
        self._site = site
        self._session_id = self._epoch = 0
        self._leader_epoch = leader_epoch
        self.told = self.fetch(**{each.decode(): 0 for each in topics})

    def fetch(self, broker: int = 1, **offsets: int) -> dict[str, PartitionData]:
        """Say where to read from now on; return what is answered, by topic id."""
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            session_id=self._session_id,
            session_epoch=self._epoch,
            topics=[
                FetchTopic(
                    topic_id=TopicId(name.encode()),
                    partitions=[
                        FetchPartition(
                            partition=0,
                            fetch_offset=offset,
                            partition_max_bytes=1 << 20,
                            current_leader_epoch=self._leader_epoch,
                        )
                    ],
                )
                for name, offset in offsets.items()
            ],
        )
        response = self._site[broker].ask(ApiKey.FETCH, 16, request).result()
        assert isinstance(response, FetchResponse)
        assert response.error_code == 0
        self._session_id, self._epoch = response.session_id, self._epoch + 1
        return {topic.topic_id.decode(): topic.partitions[0] for topic in response.responses}


def id_of(name: str) -> TopicId:
    return TopicId(name.encode().ljust(16, b".")[:16])


def with_others() -> ClusterSite:
    site = ClusterSite(min_isr=2)
    for name in OTHERS:
        site.create(name)
    site.advance(1_000)  # what comes new waits for a moment
    return site


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which topics' partitions were read, as often as they were."""
    found: list[str] = []
    read = Partition.read

    def counted(self: Partition, *arguments: Any, **named: Any) -> LogRead:
        found.append(self.topic_partition.topic)
        return read(self, *arguments, **named)

    monkeypatch.setattr(Partition, "read", counted)
    return found


def test_replication_of_one_partition_reads_no_other(reads: list[str]) -> None:
    site = with_others()
    site[1].produce(b"first")
    site.settle()
    reads.clear()
    produced = site[1].produce(b"second")
    site.settle()
    assert produced.error is ErrorCode.NONE
    assert [site[each].end for each in (1, 2, 3)] == [2, 2, 2]
    assert set(reads) == {TOPIC}


def test_a_followers_fetch_names_what_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    site = with_others()
    sizes: list[int] = []
    send = Link.send

    def measured(self: Link, outgoing: Outgoing) -> None:
        sizes.append(len(joined(outgoing)))
        send(self, outgoing)

    monkeypatch.setattr(Link, "send", measured)
    site[1].produce(b"one")
    site.settle()
    assert sizes
    assert max(sizes) < 200, "21 partitions take more"


def test_a_fetch_that_begins_anew_leaves_no_session_behind() -> None:
    site = ClusterSite(min_isr=2)
    for name in OTHERS:
        site.create(name)  # each new topic ends the fetch that waits
        site.advance(40)
        site.advance(500)
    assert len(site[1].services.fetch_sessions) == 2


def test_every_partition_moves_when_its_turn_comes() -> None:
    site = with_others()
    for name in (OTHERS[3], TOPIC, OTHERS[3], OTHERS[19]):
        produced = site[1].produce(name.encode(), topic=name)
        site.settle()
        assert produced.error is ErrorCode.NONE
    assert site[2].values() == site[3].values() == site[1].values()


def test_what_a_follower_is_refused_it_asks_for_again_after_a_pause() -> None:
    """A leader of one partition that does not know of its leadership yet, among many."""
    site = with_others()
    site.controller.write(leader_epoch=site.controller.state.leader_epoch + 1)
    site.push(2, 3)  # the followers hear first, and are told UNKNOWN_LEADER_EPOCH
    site.settle()
    produced = site[1].produce(b"elsewhere", topic=OTHERS[0])
    site.settle()
    assert produced.error is ErrorCode.NONE
    site.push(1)
    site.advance(2_000)
    produced = site[1].produce(b"here")
    site.settle()
    assert produced.error is ErrorCode.NONE


def test_new_records_are_read_and_quiet_partitions_are_not(reads: list[str]) -> None:
    site = with_others()
    consumer = Consumer(site, TOPIC_ID, id_of(OTHERS[0]), id_of(OTHERS[1]))
    assert consumer.fetch() == {}
    reads.clear()
    assert consumer.fetch() == {}
    assert reads == []
    site[1].produce(b"new", topic=OTHERS[0])
    site.settle()
    reads.clear()
    answer = consumer.fetch()
    assert set(answer) == {id_of(OTHERS[0]).decode()}
    assert answer[id_of(OTHERS[0]).decode()].records
    assert set(reads) == {OTHERS[0]}
    # It did not say that it has them, so they come again.
    assert set(consumer.fetch()) == {id_of(OTHERS[0]).decode()}


def test_a_new_log_start_is_told_where_there_is_nothing_to_read() -> None:
    site = with_others()
    site[1].produce(b"one")
    site.settle()
    consumer = Consumer(site, TOPIC_ID, id_of(OTHERS[0]))
    assert consumer.fetch(**{TOPIC_ID.decode(): 1}) == {}
    assert consumer.fetch() == {}
    delete_records_before(site[1].partition, 1)
    assert consumer.fetch()[TOPIC_ID.decode()].log_start_offset == 1
    assert consumer.fetch() == {}


def test_a_change_of_leader_is_told_where_there_is_nothing_to_read() -> None:
    site = with_others()
    consumer = Consumer(site, TOPIC_ID, id_of(OTHERS[0]), leader_epoch=0)
    assert consumer.fetch() == consumer.fetch() == {}
    site.controller.elect(1)
    site.settle()
    told = consumer.fetch()[TOPIC_ID.decode()]
    assert told.error_code == ErrorCode.FENCED_LEADER_EPOCH.code
    site.controller.elect(2)
    site.settle()
    told = consumer.fetch()[TOPIC_ID.decode()]
    assert told.error_code != ErrorCode.NONE.code
