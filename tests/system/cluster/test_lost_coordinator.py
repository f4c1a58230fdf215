"""A coordinator that is cut from ZooKeeper and from nothing else, with real processes.

Bytes between the broker and ZooKeeper vanish and their connection stays; clients and brokers reach
it as before. Once its session has expired another broker is elected for the group's partition and
takes commits. Every broker is asked for the group's offset all the time: a committed offset never
goes back, whoever is asked.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator

import pytest
from tests.link_proxy import ZOOKEEPER
from tests.system.cluster.faulty_site import IDS, FaultySite
from tests.system.wire import HungUpError, Wire
from tests.waiting import wait_until

from millstream.coordinator.group.partitioner import group_partition
from millstream.history.checker import GroupOffset, History, Step, judge
from millstream.model.errors import ErrorCode
from millstream.model.topic import GROUP_METADATA_TOPIC
from millstream.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from millstream.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from millstream.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)

pytestmark = [pytest.mark.system, pytest.mark.slow, pytest.mark.timeout(300)]

GROUP = "lost"
TOPIC = "read-by-group"
PLACE = (TOPIC, 0)
PARTITIONS = 4
PARTITION = group_partition(GROUP, PARTITIONS)
COMMITS_AFTER = 30


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultySite]:
    settings = {
        "auto.leader.rebalance.enable": "false",
        "offsets.topic.num.partitions": str(PARTITIONS),
    }
    with FaultySite(tmp_path_factory.mktemp("lost-coordinator"), settings) as started:
        yield started


class Asker:
    """Asks one broker again and again what the group has committed."""

    def __init__(self, site: FaultySite, broker: int, history: History) -> None:
        self._address = ("127.0.0.1", site.brokers[broker].port)
        self._broker = broker
        self._history = history
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.answers: Counter[ErrorCode] = Counter()

    def __enter__(self) -> Asker:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join(30)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                with Wire(*self._address, timeout_s=10) as wire:
                    while not self._stopped.wait(0.02):
                        self._ask(wire)
            except (OSError, HungUpError):
                continue

    def _ask(self, wire: Wire) -> None:
        wanted = OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0])
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=[wanted])]
        )
        asked = time.monotonic()
        group = wire.call(request, 8, OffsetFetchResponse).groups[0]
        error = ErrorCode.of(group.error_code)
        self.answers[error] += 1
        if error is ErrorCode.NONE:
            offset = max(0, group.topics[0].partitions[0].committed_offset)
            self._history.group_offsets.append(
                GroupOffset(GROUP, PLACE, offset, Step.SEEN, time.monotonic(), asked, self._broker)
            )


def coordinator(site: FaultySite) -> int:
    """Return who leads the group's partition, as ZooKeeper has it."""
    path = f"/brokers/topics/{GROUP_METADATA_TOPIC}/partitions/{PARTITION}/state"
    leader: int = json.loads(site.stored(path))["leader"]
    return leader


def commit(site: FaultySite, history: History, broker: int, offset: int) -> ErrorCode:
    """Commit an offset at one broker, and at no other."""
    partition = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata=""
    )
    request = OffsetCommitRequest(
        group_id=GROUP,
        member_id="",
        topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])],
    )
    steps = history.group_offsets
    steps.append(GroupOffset(GROUP, PLACE, offset, Step.SENT, time.monotonic()))
    with Wire("127.0.0.1", site.brokers[broker].port) as wire:
        response = wire.call(request, 8, OffsetCommitResponse)
    error = ErrorCode.of(response.topics[0].partitions[0].error_code)
    if error is ErrorCode.NONE:
        steps.append(GroupOffset(GROUP, PLACE, offset, Step.ACKNOWLEDGED, time.monotonic()))
    return error


def make_offsets_topic(site: FaultySite) -> None:
    def found() -> bool:
        request = FindCoordinatorRequest(coordinator_keys=[GROUP])
        with Wire("127.0.0.1", site.brokers[1].port) as wire:
            answer = wire.call(request, 4, FindCoordinatorResponse)
        return answer.coordinators[0].error_code == 0

    wait_until(found, "a coordinator")


@pytest.mark.long
def test_a_coordinator_cut_from_zookeeper_does_not_answer_for_its_successor(
    site: FaultySite,
) -> None:
    site.create(TOPIC)
    make_offsets_topic(site)
    history = History()
    old = coordinator(site)
    wait_until(lambda: commit(site, history, old, 1) is ErrorCode.NONE, "a commit")
    askers = {number: Asker(site, number, history) for number in IDS}
    with askers[1], askers[2], askers[3]:
        wait_until(lambda: askers[old].answers[ErrorCode.NONE] > 10, "answers of the coordinator")
        site.links.cut_off(old, ZOOKEEPER)
        wait_until(lambda: coordinator(site) not in (old, -1), "another coordinator")
        new = coordinator(site)
        refused_before = askers[old].answers[ErrorCode.NOT_COORDINATOR]
        offset = 1
        for _ in range(COMMITS_AFTER):
            offset += 1
            last = offset
            wait_until(lambda: commit(site, history, new, last) is ErrorCode.NONE, "a commit")  # noqa: B023
            time.sleep(0.1)
        seen = askers[new].answers[ErrorCode.NONE]
        wait_until(lambda: askers[new].answers[ErrorCode.NONE] > seen, "answers of the new one")
        refused = askers[old].answers[ErrorCode.NOT_COORDINATOR] - refused_before
        site.links.heal()
        wait_until(lambda: set(site.known_to(old).brokers) == set(IDS), "the broker is back")
    assert [each.text for each in judge(history)] == []
    assert refused > COMMITS_AFTER, "the old coordinator was asked while it was cut off"
