"""A consumer on the twin loop, with a user who polls, and keeps what it saw."""

from __future__ import annotations

from collections.abc import Iterable

from tests.client_twin.loop import TwinLoop
from tests.client_twin.readers import ReaderCluster

from millstream.client.core.consumer.core import ConsumerCore
from millstream.client.core.consumer.delivery import Delivery
from millstream.client.core.consumer.record import ConsumerRecord
from millstream.client.core.consumer.record_reader import RecordReader
from millstream.client.core.consumer.settings import ConsumerSettings
from millstream.client.core.settings import read_settings
from millstream.client.core.waiting import sleep
from millstream.model.deferred import Deferred, spawn
from millstream.model.topic import TopicPartition


class TwinMember:
    """One consumer; ``events`` is what its listener heard, in order."""

    def __init__(self, cluster: ReaderCluster, name: str = "m", **settings: object) -> None:
        self.name = name
        self.cluster = cluster
        self.loop: TwinLoop = cluster.loop
        chosen: dict[str, object] = {
            "bootstrap_servers": cluster.bootstrap,
            "group_id": "g",
            "auto_offset_reset": "earliest",
            **settings,
        }
        self.core = ConsumerCore(self.loop, read_settings(ConsumerSettings, {}, chosen))
        self.core.fetcher.buffer.on_taken = self.core.fetcher.taken
        reader: RecordReader[bytes, bytes] = RecordReader(
            key_deserializer=self.core.settings.key_deserializer,  # type: ignore[arg-type]
            value_deserializer=self.core.settings.value_deserializer,  # type: ignore[arg-type]
        )
        self.delivery = Delivery(self.core.fetcher.buffer, reader)
        self.seen: list[tuple[TopicPartition, int]] = []
        self.events: list[tuple[str, frozenset[TopicPartition]]] = []
        self.owned: frozenset[TopicPartition] = frozenset()
        self.is_running = True

    # --- the listener ----------------------------------------------------------------------------

    def on_partitions_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        self.events.append(("revoked", partitions))
        self.owned -= partitions

    def on_partitions_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        self.events.append(("assigned", partitions))
        self.owned |= partitions

    def on_partitions_lost(self, partitions: frozenset[TopicPartition]) -> None:
        self.events.append(("lost", partitions))
        self.owned -= partitions

    # --- the user --------------------------------------------------------------------------------

    def subscribe(self, topics: Iterable[str]) -> None:
        self.core.subscribe(list(topics), self)

    async def poll(
        self, timeout_ms: float = 0, max_records: int = 100
    ) -> list[ConsumerRecord[bytes, bytes]]:
        """What both faces do."""
        deadline = self.loop.now_ms() + timeout_ms
        records = [] if self.core.user.attention else self.delivery.take(max_records)
        if records:
            self.core.note_poll()
        wait_ms = 0 if self.core.user.attention else timeout_ms
        while not records:
            call = await self.core.poll(wait_ms)
            if call is not None:
                call.function()
                call.done.complete(None)
            records = self.delivery.take(max_records)
            wait_ms = deadline - self.loop.now_ms()
            if wait_ms <= 0:
                break
        self.seen += [(each.topic_partition, each.offset) for each in records]
        return records

    async def drive(self) -> None:
        """Poll, think a little, poll."""
        while self.is_running:
            await self.poll(self.loop.chance.choice([0, 10, 200]), self.loop.chance.choice([1, 7]))
            await sleep(self.loop, self.loop.chance.choice([1, 5, 20]))

    def start(self) -> Deferred[None]:
        return spawn(self.drive())

    async def close(self, timeout_ms: float = 30_000, *, pause_ms: float = 0) -> None:
        """Close; ``pause_ms`` is how long it takes the user to see what is there to run."""
        self.is_running = False
        target = spawn(self.core.close(timeout_ms))
        while True:
            if pause_ms:
                await sleep(self.loop, pause_ms)
            call = await self.core.user.serve(target)
            if call is None:
                break
            call.function()
            call.done.complete(None)
        target.result()

    def kill(self) -> None:
        """Vanish: no word to the group."""
        self.is_running = False
        self.core.end()
