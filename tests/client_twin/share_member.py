"""A share consumer on the twin loop, with a user who polls as both faces do."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from tests.client_twin.loop import TwinLoop
from tests.client_twin.sharing import ShareCluster

from millstream.client.core.consumer.errors import RecordError
from millstream.client.core.consumer.record_reader import RecordReader
from millstream.client.core.settings import read_settings
from millstream.client.core.share.acknowledgements import Acknowledged, AcknowledgeType
from millstream.client.core.share.core import ShareConsumerCore
from millstream.client.core.share.delivery import ShareDelivery
from millstream.client.core.share.record import ShareRecord
from millstream.client.core.share.settings import ShareConsumerSettings
from millstream.model.deferred import Deferred, spawn

Records = list[ShareRecord[bytes, bytes]]


class TwinShareMember:
    """One share consumer; ``settled`` is what became of its acknowledgements, in order."""

    def __init__(self, cluster: ShareCluster, **settings: object) -> None:
        self.cluster = cluster
        self.loop: TwinLoop = cluster.loop
        chosen: dict[str, object] = {
            "bootstrap_servers": cluster.bootstrap,
            "group_id": "s",
            **settings,
        }
        self.settings = read_settings(ShareConsumerSettings, {}, chosen)
        self.core = ShareConsumerCore(self.loop, self.settings)
        self.core.reports_all = True
        self.core.on_settled = self._on_settled
        reader: RecordReader[bytes, bytes] = RecordReader(
            value_deserializer=self.settings.value_deserializer  # type: ignore[arg-type]
        )
        self.delivery = ShareDelivery(
            self.core.fetcher.buffer,
            reader,
            self.loop.now_ms,
            explicit=self.settings.is_explicit,
        )
        self.settled: list[tuple[dict[int, int], Exception | None]] = []
        self.is_running = True

    def _on_settled(self, acknowledged: Acknowledged, error: Exception | None) -> None:
        self.delivery.settled(acknowledged, error)
        self.settled.append((dict(acknowledged.types), error))

    async def poll(self, timeout_ms: float = 0, max_records: int = 500) -> Records:
        self.delivery.check_acknowledged()
        acknowledged = self.delivery.take_acknowledged()
        deadline = self.loop.now_ms() + timeout_ms
        if not self.core.user.attention:
            try:
                records = self.delivery.take(max_records)
            except RecordError:
                self.core.acknowledge(acknowledged)
                raise
            if records:
                self.core.acknowledge(acknowledged)
                self.core.note_poll()
                return records
        wait_ms = 0 if self.core.user.attention else timeout_ms
        while True:
            call = await self.core.poll(acknowledged, wait_ms)
            if call is not None:
                call.function()
                call.done.complete(None)
            records = self.delivery.take(max_records)
            wait_ms = deadline - self.loop.now_ms()
            if records or wait_ms <= 0:
                return records
            acknowledged = self.delivery.take_acknowledged()

    async def commit(self, timeout_ms: float = 60_000) -> None:
        await self._drive(self.core.commit(self.delivery.take_acknowledged(), timeout_ms))

    async def close(self, timeout_ms: float = 30_000) -> None:
        self.is_running = False
        acknowledged = self.delivery.take_acknowledged(accept_rest=False)
        await self._drive(self.core.close(acknowledged, timeout_ms))

    async def _drive(self, coroutine: Coroutine[Deferred[Any], Any, Any]) -> None:
        target = spawn(coroutine)
        while True:
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

    def say(self, records: Records, kind: AcknowledgeType) -> None:
        for record in records:
            self.delivery.acknowledge(record, kind)
