"""A story of a consumer group: a producer writes numbers, members read, commit, come and go, and
the broker may die in between. What is told is the same for every client.

The numbers 0, 1, 2, ... go to the partitions by turns, so a partition that holds every one of its
numbers once and in order lost nothing, doubled nothing and mixed nothing up.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.broker_process import BrokerProcess
from tests.system.wire import HungUpError, Wire, create_topic, offset_for

from millstream.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)

TOPIC = "numbers"
GROUP = "readers"
PARTITIONS = 4
SESSION_TIMEOUT_MS = 3_000
SETTINGS = {
    "group.initial.rebalance.delay.ms": "100",
    "group.min.session.timeout.ms": str(SESSION_TIMEOUT_MS),
}
PATIENCE_S = 60.0


def quiet(_error: object) -> None:
    """Hear of a broker that is down, and say nothing."""


class Arrival(NamedTuple):
    """A record as a member got it."""

    partition: int
    offset: int
    value: int


class GroupClient(Protocol):
    """A consumer of some library, subscribed to the topic. One thread uses it."""

    def poll(self) -> list[Arrival]:
        """Wait shortly for records."""

    def commit(self, positions: Mapping[int, int]) -> bool:
        """Commit the offsets to read next, and wait for the answer.

        False while a rebalance is on or the broker is down: the records are read again by whoever
        gets the partition. Anything else is an error.
        """

    def positions(self) -> Mapping[int, int]:
        """Return the offsets to read next of the partitions that are this member's now."""

    def close(self) -> None:
        """Leave the group."""


class Received:
    """What all members together got."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.values: dict[tuple[int, int], int] = {}
        self.times: Counter[int] = Counter()

    def note(self, arrivals: list[Arrival]) -> None:
        with self._lock:
            for partition, offset, value in arrivals:
                assert self.values.setdefault((partition, offset), value) == value
                self.times[value] += 1

    def wait_for(self, count: int) -> None:
        """Wait until every number below ``count`` has come to some member."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            with self._lock:
                if len(self.times) >= count:
                    break
            time.sleep(0.05)
        missing = set(range(count)) - self.times.keys()
        assert not missing, f"{len(missing)} records came to nobody: {sorted(missing)[:5]} ..."


class Member(threading.Thread):
    """Reads, commits what it read, and goes on until it is told to leave."""

    def __init__(self, client: GroupClient, received: Received) -> None:
        super().__init__(daemon=True)
        self._client = client
        self._together = received
        self._leaving = threading.Event()
        self.received = 0
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            owes = False
            while owes or not self._leaving.is_set():
                arrivals = self._client.poll()
                self._together.note(arrivals)
                self.received += len(arrivals)
                positions: Mapping[int, int] = {
                    each.partition: each.offset + 1 for each in arrivals
                }
                if owes:
                    # Not what failed before: the partition may be another's by now.
                    positions = self._client.positions()
                owes = bool(positions) and not self._client.commit(positions)
            self._client.close()
        except BaseException as error:
            self.failure = error
            raise

    def leave(self) -> None:
        self._leaving.set()
        self.join(PATIENCE_S)
        assert not self.is_alive(), "a member does not come to an end"
        assert self.failure is None


class CommittedWatch(threading.Thread):
    """Asks all the time what is committed, with raw requests: it must never go back."""

    def __init__(self, broker: BrokerProcess) -> None:
        super().__init__(daemon=True)
        self._broker = broker
        self._ended = threading.Event()
        self.offsets: dict[int, int] = {}
        self.steps_back: list[str] = []
        self.samples = 0

    def run(self) -> None:
        while not self._ended.is_set():
            with contextlib.suppress(OSError, HungUpError):
                self._watch()
            time.sleep(0.02)

    def _watch(self) -> None:
        with Wire(self._broker.host, self._broker.port) as wire:
            while not self._ended.is_set():
                self._look(wire)
                time.sleep(0.02)

    def _look(self, wire: Wire) -> None:
        offsets = committed(wire)
        if offsets is None:
            return
        for partition, before in self.offsets.items():
            now = offsets.get(partition, -1)
            if now < before:
                self.steps_back.append(f"partition {partition}: {before} became {now}")
        self.offsets = offsets
        self.samples += 1

    def end(self) -> None:
        self._ended.set()
        self.join(PATIENCE_S)
        assert self.samples > 0
        assert not self.steps_back


def committed(wire: Wire) -> dict[int, int] | None:
    """Return the group's offsets, None while nobody knows them."""
    wanted = OffsetFetchRequestGroup(group_id=GROUP, topics=None)
    response = wire.call(OffsetFetchRequest(groups=[wanted]), 9, OffsetFetchResponse)
    (group,) = response.groups
    if group.error_code:
        return None
    return {
        each.partition_index: each.committed_offset
        for topic in group.topics
        for each in topic.partitions
        if topic.name == TOPIC
    }


def committed_now(broker: BrokerProcess) -> dict[int, int]:
    """Return the group's offsets, once its coordinator has loaded."""
    with Wire(broker.host, broker.port) as wire:
        deadline = time.monotonic() + PATIENCE_S
        while (offsets := committed(wire)) is None:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        return offsets


def create_numbers_topic(broker: BrokerProcess) -> None:
    with Wire(broker.host, broker.port) as wire:
        create_topic(wire, TOPIC, PARTITIONS)


def check_log(broker: BrokerProcess, count: int) -> None:
    """The log holds every number below ``count`` once, in order, each in its partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "auditor",
            "enable.auto.commit": False,
            "error_cb": quiet,
        }
    )
    consumer.assign([TopicPartition(TOPIC, index, 0) for index in range(PARTITIONS)])
    found: dict[int, list[int]] = {index: [] for index in range(PARTITIONS)}
    left = count
    while left > 0:
        messages = consumer.consume(min(left, 10_000), 5.0)
        assert messages, f"{left} records are not there"
        for message in messages:
            assert message.error() is None
            partition, value = message.partition(), message.value()
            assert partition is not None
            assert isinstance(value, bytes)
            found[partition].append(int(value))
        left -= len(messages)
    consumer.close()
    with Wire(broker.host, broker.port) as wire:
        for partition, values in found.items():
            assert values == list(range(partition, count, PARTITIONS)), f"partition {partition}"
            assert offset_for(wire, TOPIC, partition, -1).offset == len(values)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail("waited in vain")
        time.sleep(0.02)
