"""Share partitions of real brokers: what was acknowledged survives kill -9, what was not is
delivered again.

Requests of ours on raw sockets; there is no member and no heartbeat, which a leader does not ask
for.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.broker_process import BrokerProcess
from tests.system.wire import Wire, create_topic, produce

from millstream.protocol.messages import initialize_share_group_state as initialize
from millstream.protocol.messages.share_acknowledge import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
)
from millstream.protocol.messages.share_fetch import (
    FetchPartition,
    FetchTopic,
    ShareFetchRequest,
    ShareFetchResponse,
)
from millstream.records.batch import iter_batches
from millstream.records.builder import BatchBuilder, BatchOptions
from millstream.records.record import read_records

pytestmark = pytest.mark.system

GROUP = "workers"
ACCEPT, RELEASE, REJECT = 1, 2, 3


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    settings = {"group.share.min.record.lock.duration.ms": "1000"}
    with BrokerProcess(tmp_path, settings) as process:
        yield process


class Member:
    """A share consumer of one partition, on a connection of its own."""

    def __init__(self, broker: BrokerProcess, name: str, topic_id: bytes) -> None:
        self.wire = Wire(broker.host, broker.port)
        self.name = name
        self.topic_id = topic_id
        self.epoch = 0

    def fetch(self, max_records: int = 500, max_wait_ms: int = 500) -> dict[int, tuple[int, bytes]]:
        """Return the records that were acquired: delivery count and value by offset."""
        partitions = [FetchPartition(partition_index=0, acknowledgement_batches=[])]
        request = ShareFetchRequest(
            group_id=GROUP,
            member_id=self.name,
            share_session_epoch=self.epoch,
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_records=max_records,
            batch_size=max_records,
            topics=[FetchTopic(topic_id=self.topic_id, partitions=partitions)],
            forgotten_topics_data=[],
        )
        self.epoch += 1
        response = self.wire.call(request, 2, ShareFetchResponse)
        assert response.error_code == 0, response
        found: dict[int, tuple[int, bytes]] = {}
        for topic in response.responses:
            for data in topic.partitions:
                assert data.error_code == 0, data
                records = {
                    record.offset: record.value or b""
                    for batch in iter_batches(memoryview(bytes(data.records)))  # type: ignore[arg-type]
                    for record in read_records(batch)
                }
                for each in data.acquired_records:
                    for offset in range(each.first_offset, each.last_offset + 1):
                        found[offset] = each.delivery_count, bytes(records[offset])
        return found

    def acknowledge(self, types: dict[int, int]) -> int:
        request = ShareAcknowledgeRequest(
            group_id=GROUP,
            member_id=self.name,
            share_session_epoch=self.epoch,
            topics=[
                AcknowledgeTopic(
                    topic_id=self.topic_id,
                    partitions=[
                        AcknowledgePartition(
                            partition_index=0,
                            acknowledgement_batches=[
                                AcknowledgementBatch(
                                    first_offset=offset,
                                    last_offset=offset,
                                    acknowledge_types=[kind],
                                )
                                for offset, kind in sorted(types.items())
                            ],
                        )
                    ],
                )
            ],
        )
        self.epoch += 1
        response = self.wire.call(request, 2, ShareAcknowledgeResponse)
        assert response.error_code == 0, response
        return response.responses[0].partitions[0].error_code

    def close(self) -> None:
        self.wire.close()


def make_topic(broker: BrokerProcess, name: str, batches: int) -> bytes:
    """Make a topic with batches of ten records, and a share group that begins at its start."""
    with Wire(broker.host, broker.port) as wire:
        topic_id = create_topic(wire, name, 1)
        for number in range(batches):
            builder = BatchBuilder(BatchOptions())
            for each in range(10):
                builder.append(1, None, b"%d" % (number * 10 + each))
            assert produce(wire, name, 0, builder.build()).error_code == 0
        request = initialize.InitializeShareGroupStateRequest(
            group_id=GROUP,
            topics=[
                initialize.InitializeStateData(
                    topic_id=topic_id,
                    partitions=[
                        initialize.PartitionData(partition=0, state_epoch=1, start_offset=0)
                    ],
                )
            ],
        )
        for _ in range(100):
            answer = wire.call(request, 0, initialize.InitializeShareGroupStateResponse)
            if answer.results[0].partitions[0].error_code == 0:
                break
            create_state_topic(wire)
        else:
            pytest.fail("the state could not be initialized")
    return topic_id


def create_state_topic(wire: Wire) -> None:
    """Have the topic of states created, as the first fetch of a group would."""
    from millstream.protocol.messages.find_coordinator import (
        FindCoordinatorRequest,
        FindCoordinatorResponse,
    )

    request = FindCoordinatorRequest(
        key_type=2, coordinator_keys=[f"{GROUP}:AAAAAAAAAAAAAAAAAAAAAA:0"]
    )
    wire.call(request, 6, FindCoordinatorResponse)


def test_a_restart_keeps_what_was_acknowledged(broker: BrokerProcess) -> None:
    topic_id = make_topic(broker, "restart", 4)
    one = Member(broker, "m1", topic_id)
    assert sorted(one.fetch()) == list(range(40))
    assert one.acknowledge(dict.fromkeys([*range(10), *range(20, 25)], ACCEPT) | {12: REJECT}) == 0
    assert one.acknowledge({15: RELEASE}) == 0
    broker.kill()
    broker.start()
    two = Member(broker, "m2", topic_id)
    found = two.fetch()
    left = [each for each in range(10, 40) if each != 12 and not 20 <= each < 25]
    assert sorted(found) == left
    assert {offset: count for offset, (count, _) in found.items() if count > 1} == {15: 2}
    assert all(value == b"%d" % offset for offset, (_, value) in found.items())
    one.close()
    two.close()


def test_every_record_is_acknowledged_once_through_kills(broker: BrokerProcess) -> None:
    """Ten consumers, of which some go without a word; the broker is killed now and then.

    A record that five of them had in hand is archived.
    """
    chance = random.Random(20)
    topic_id = make_topic(broker, "kills", 60)
    accepted: Counter[int] = Counter()
    delivered: Counter[int] = Counter()
    used_up: set[int] = set()
    kills = 0
    members: list[Member] = []
    for step in range(2_000):  # records that were delivered often come one by one
        if len(accepted.keys() | used_up) == 600:
            break
        if step in {20, 45, 70}:
            kills += 1
            broker.kill()
            broker.start()
            for member in members:
                member.close()
            members = []
        while len(members) < 10:
            members.append(Member(broker, f"m{step}-{len(members)}", topic_id))
        member = chance.choice(members)
        found = member.fetch(max_records=10, max_wait_ms=0)
        for offset, (count, value) in found.items():
            assert value == b"%d" % offset
            assert offset not in accepted
            delivered[offset] += 1
            assert count <= 5
            if count == 5:
                used_up.add(offset)
        if chance.random() < 0.2:
            members.remove(member)
            member.close()
            continue
        types = {offset: RELEASE if chance.random() < 0.05 else ACCEPT for offset in found}
        if types:
            assert member.acknowledge(types) == 0
            accepted.update(offset for offset, kind in types.items() if kind == ACCEPT)
    assert kills == 3
    assert accepted.keys() | used_up == set(range(600))
    assert len(accepted) > 500
    assert set(accepted.values()) == {1}
    assert max(delivered.values()) > 1
    for member in members:
        member.close()
