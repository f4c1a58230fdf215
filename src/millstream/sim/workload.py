"""What clients do in a simulation: producers of every kind, consumers, groups, a topic that is
deleted and made again.
"""

from __future__ import annotations

from random import Random
from typing import Final

from millstream.history.checker import History, PartitionKey
from millstream.model.deferred import Deferred, spawn
from millstream.model.errors import ErrorCode
from millstream.model.topic import GROUP_METADATA_TOPIC
from millstream.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from millstream.runtime.pauses import pause
from millstream.sim.broker import rack_of
from millstream.sim.clients import FIRST_CLIENT, Client, Producer
from millstream.sim.consumers import Consumer
from millstream.sim.coordination import Ensemble
from millstream.sim.coordinator_workload import CoordinatorWorkload
from millstream.sim.deletions import Deleter
from millstream.sim.groups import GROUP_PARTITIONS, Asker, Committer
from millstream.sim.network import Network
from millstream.sim.recreation import TopicRecreation

TOPIC: Final = "sim"
CLIENTS: Final = 2
ASK_MS: Final = 200.0
"""How often, on average, each broker is asked what a group has committed."""


class Workload:
    """The clients of one seed, and what they have to be told in the end."""

    def __init__(
        self, chance: Random, more: Random, coordinators: CoordinatorWorkload, *, min_isr: int
    ) -> None:
        """``more`` draws what came later: seeds that have nothing of it stay as they were."""
        self.coordinators = coordinators
        self._chance = chance
        self._more = more
        self.min_isr = min_isr
        self.partition_count = chance.choice((1, 1, 2, 4))
        self.group_count = chance.choice((0, 1, 2))
        self.recreates = chance.random() < 0.3
        self.throws = chance.random() < 0.4
        """True when some producers send with acks=0."""
        self.reads_nearby = more.random() < 0.35
        """True when some consumers read from the replica in their rack."""
        self.deletes = more.random() < 0.3
        """True when records are deleted that a consumer has read."""
        self.expires = more.random() < 0.2
        """True when topics keep some of their newest bytes alone."""
        self.asks_everybody = False
        """True when every broker is asked what groups have committed; then there are groups."""
        self.segment_bytes: int | None = None
        """Size at which the topic's segments are closed; None for one that is never reached."""
        self.flush_policy: str | None = None
        """The topic's flush policy; None for one that chance draws."""
        self.history = History()
        self.numbers = list(range(FIRST_CLIENT, FIRST_CLIENT + CLIENTS))
        self.clients: list[Client] = []
        self.producers: list[Producer] = []
        self.consumers: list[Consumer] = []
        self.deleters: list[Deleter] = []
        self.committers: list[Committer] = []
        self.askers: list[Asker] = []
        self.recreation: TopicRecreation | None = None

    @property
    def topics(self) -> dict[str, int]:
        """How many partitions the topics have that are there in any case."""
        topics = {TOPIC: self.partition_count, **self.coordinators.topics}
        if self.group_count:
            topics[GROUP_METADATA_TOPIC] = GROUP_PARTITIONS
        return topics

    def ask_everybody(self) -> None:
        """Have every broker asked what groups have committed, and at least one group commit."""
        self.asks_everybody = True
        self.group_count = max(1, self.group_count)

    def connect(self, network: Network, brokers: list[int], ensemble: Ensemble) -> None:
        """Make the clients."""
        self.clients = [
            Client(each, network, brokers, self.history, ensemble) for each in self.numbers
        ]

    def create_topic(self) -> Deferred[None]:
        """Make the topic that all write to."""
        return spawn(self._create_topic())

    async def _create_topic(self) -> None:
        chance = self._chance
        drawn = chance.choice(("os", "os", "os", "ack"))
        topic = CreatableTopic(
            name=TOPIC,
            num_partitions=self.partition_count,
            replication_factor=3,
            assignments=[],
            configs=[
                CreatableTopicConfig(name="min.insync.replicas", value=str(self.min_isr)),
                CreatableTopicConfig(name="flush.policy", value=self.flush_policy or drawn),
                CreatableTopicConfig(name="segment.index.bytes", value="4096"),
                CreatableTopicConfig(name="segment.ms", value=chance.choice(("600000", "1500"))),
            ],
        )
        if self.expires:
            topic.configs[-1].value = "1500"
            topic.configs.append(CreatableTopicConfig(name="retention.bytes", value="1500"))
            self.history.expiring.update((TOPIC, each) for each in range(self.partition_count))
        if self.segment_bytes is not None:
            size = str(self.segment_bytes)
            topic.configs.append(CreatableTopicConfig(name="internal.segment.bytes", value=size))
        for each in (topic, *self.coordinators.new_topics()):
            await self._create(each)

    async def _create(self, topic: CreatableTopic) -> None:
        client = self.clients[0]
        request = CreateTopicsRequest(topics=[topic], timeout_ms=5_000)
        while True:
            response = await client.ask(client.any_broker(), request, lane="admin")
            assert isinstance(response, CreateTopicsResponse)
            if response.topics[0].error_code in (0, ErrorCode.TOPIC_ALREADY_EXISTS.code):
                return
            await pause(client.clock, 100)

    def start(self) -> None:
        """Begin to write, read and commit."""
        chance = self._chance
        kinds = [(-1, True), (-1, False), (1, False)]
        if self.throws:
            kinds.append((0, False))
        for index in range(self.partition_count):
            partition_key = (TOPIC, index)
            for number, (acks, once) in enumerate(kinds):
                self.producers.append(
                    Producer(
                        chance.choice(self.clients),
                        partition_key,
                        f"p{index}-{number}",
                        acks=acks,
                        once=once,
                        pause_ms=chance.choice((80.0, 300.0, 1_000.0)),
                    )
                )
            self._start_consumers(partition_key)
        for number in range(self.group_count):
            pause_ms = chance.choice((50.0, 300.0, 1_000.0))
            client = chance.choice(self.clients)
            self.committers.append(Committer(client, f"g{number}", (TOPIC, 0), pause_ms=pause_ms))
            if self.asks_everybody:
                asker = Asker(self.clients[-1], f"g{number}", (TOPIC, 0), pause_ms=ASK_MS)
                self.askers.append(asker)
        for producer in self.producers:
            producer.start()
        for committer in self.committers:
            committer.start()
        for asker in self.askers:
            asker.start()
        self.coordinators.start(self.clients, TOPIC, reads_nearby=self.reads_nearby)
        if self.recreates:
            self.recreation = TopicRecreation(
                self.clients[0], min_isr=self.min_isr, pause_ms=chance.choice((100.0, 500.0))
            )
            self.recreation.start()

    def _start_consumers(self, partition_key: PartitionKey) -> None:
        """Begin to read, and to delete what the first consumer has read."""
        chance = self._chance
        readers = []
        for number in range(2):
            client = chance.choice(self.clients)
            readers.append(self._consumer(client, partition_key, number, len(client.brokers)))
            readers[-1].start()
        self.consumers += readers
        if self.deletes:
            pause_ms = chance.choice((200.0, 1_000.0))
            deleter = Deleter(
                chance.choice(self.clients), partition_key, readers[0], pause_ms=pause_ms
            )
            self.deleters.append(deleter)
            deleter.start()

    def _consumer(
        self, client: Client, partition_key: PartitionKey, number: int, brokers: int
    ) -> Consumer:
        """Return a consumer: the first keeps up, the second may be slow."""
        more = self._more
        rack = rack_of(1 + more.randrange(brokers)) if self.reads_nearby else ""
        is_slow = number > 0 and (self.deletes or self.expires) and more.random() < 0.7
        pause_ms = more.choice((500.0, 2_000.0)) if is_slow else 0.0
        return Consumer(
            client, partition_key, f"c{partition_key[1]}-{number}", rack=rack, pause_ms=pause_ms
        )

    def hold(self) -> None:
        """Have the producers send nothing new."""
        for producer in self.producers:
            producer.held = True

    def stop(self) -> None:
        """Begin nothing more."""
        for client in self.clients:
            client.stopped = True

    def waits_since(self, moment_ms: float) -> list[str]:
        """Return who has not been answered since a moment, though answers are owed."""
        waiting = [
            each.name
            for each in self.producers
            if each.acks == -1 and each.last_acknowledged_ms <= moment_ms
        ]
        waiting += [each.group for each in self.committers if each.last_answered_ms <= moment_ms]
        return waiting + self.coordinators.waits_since(moment_ms)
