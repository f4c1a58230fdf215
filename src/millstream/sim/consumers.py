"""Consumers of a simulation: they read one partition from its beginning and note what they see.

One that knows its rack reads from the replica there when the leader sends it to it (KIP-392), and
goes back to the leader whenever that replica refuses it, as Kafka's consumer does. Where records
are deleted, one that is slow finds that the log begins later by now, and goes on there.
"""

from __future__ import annotations

from typing import Final

from millstream.history.checker import PartitionKey, Poll
from millstream.model.broker import BrokerId
from millstream.model.errors import ErrorCode, KafkaError
from millstream.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from millstream.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from millstream.protocol.outgoing import IN_MEMORY
from millstream.records.batch import iter_batches
from millstream.records.record import iter_records
from millstream.runtime.pauses import pause
from millstream.sim.clients import Client, run_client

FETCH_VERSION: Final = 12
LIST_VERSION: Final = 5
EARLIEST: Final = -2
NEAR_MS: Final = 2_000
"""How long a consumer stays with a replica that it was sent to."""


class Consumer:
    """Reads one partition. ``rack`` is empty for one that reads from leaders; a slow one waits
    ``pause_ms`` before each fetch.
    """

    def __init__(
        self,
        client: Client,
        partition_key: PartitionKey,
        name: str,
        *,
        rack: str = "",
        pause_ms: float = 0.0,
    ) -> None:
        self._client = client
        self._partition_key = partition_key
        self.name = name
        self.position = 0
        self._rack = rack
        self._pause_ms = pause_ms
        self._near: BrokerId | None = None
        self._near_until_ms = 0.0
        self._told: dict[int, tuple[int, int]] = {}
        """Log start and high watermark as the leader of each epoch told them last."""
        self._is_fresh = False
        self.near_reads = 0
        """Answers with records of a replica that does not lead."""
        self.resets = 0
        """How often the log began later than where it was to go on."""

    def start(self) -> None:
        """Read until the client is stopped."""
        run_client(self._client, self._read_all())

    async def _read_all(self) -> None:
        client = self._client
        while not client.stopped:
            if self._pause_ms:
                await pause(client.clock, client.chance.expovariate(1 / self._pause_ms))
            try:
                await self._read_once()
            except KafkaError:
                self._near = None
                await client.look_again(self._partition_key)

    async def _read_once(self) -> None:
        """Fetch once; KafkaError where another replica may have to be asked."""
        client = self._client
        leader = await client.leader_of(self._partition_key)
        epoch = client.epoch_of(self._partition_key)
        if client.clock.monotonic_ms() > self._near_until_ms:
            self._near = None
        near = self._near
        source = leader if near is None else near
        response = await client.ask(source, self._request(epoch), FETCH_VERSION, lane=self.name)
        assert isinstance(response, FetchResponse)
        if response.error_code:
            raise KafkaError(ErrorCode.of(response.error_code))
        data = response.responses[0].partitions[0]
        if data.error_code:
            await self._refused(ErrorCode.of(data.error_code), epoch, near)
            raise KafkaError(ErrorCode.of(data.error_code))
        if data.preferred_read_replica >= 0:
            self._near = BrokerId(data.preferred_read_replica)
            self._near_until_ms = client.clock.monotonic_ms() + NEAR_MS
            return
        if near is None:
            self._compare(data, epoch)
        else:
            self.near_reads += bool(data.records)
        self._take(data)

    def _request(self, epoch: int) -> FetchRequest:
        topic, index = self._partition_key
        partition = FetchPartition(
            partition=index,
            current_leader_epoch=epoch,
            fetch_offset=self.position,
            partition_max_bytes=1 << 16,
        )
        return FetchRequest(
            max_wait_ms=400,
            min_bytes=1,
            topics=[FetchTopic(topic=topic, partitions=[partition])],
            rack_id=self._rack,
        )

    async def _refused(self, error: ErrorCode, epoch: int, near: BrokerId | None) -> None:
        if error is ErrorCode.UNKNOWN_SERVER_ERROR:
            self._wrong(f"is answered {error.name}")
        elif error is ErrorCode.OFFSET_OUT_OF_RANGE and near is None:
            await self._look_for_the_start(epoch)

    async def _look_for_the_start(self, epoch: int) -> None:
        """Go on where the log begins, which nobody may have moved beyond what was to be deleted."""
        start = await self._log_start(epoch)
        history = self._client.history
        if start > self.position:
            if start > history.deleted_up_to(self._partition_key):
                self._wrong(f"finds that it begins at {start}, and nobody deleted so much")
            self.position = start
            self._is_fresh = True
            self.resets += 1
        elif history.deleted_up_to(self._partition_key) <= self.position:
            self._wrong(f"is out of range for the leader of epoch {epoch}")

    async def _log_start(self, epoch: int) -> int:
        client, (topic, index) = self._client, self._partition_key
        wanted = ListOffsetsPartition(
            partition_index=index, current_leader_epoch=epoch, timestamp=EARLIEST
        )
        request = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[wanted])]
        )
        leader = await client.leader_of(self._partition_key)
        response = await client.ask(leader, request, LIST_VERSION, lane=self.name)
        assert isinstance(response, ListOffsetsResponse)
        found = response.topics[0].partitions[0]
        if found.error_code:
            raise KafkaError(ErrorCode.of(found.error_code))
        return found.offset

    def _compare(self, data: PartitionData, epoch: int) -> None:
        """One leadership tells neither an earlier log start nor a smaller high watermark."""
        start, high_watermark = self._told.get(epoch, (0, 0))
        if data.log_start_offset < start:
            self._wrong(f"was told that it begins at {data.log_start_offset}, before at {start}")
        if data.high_watermark < high_watermark:
            self._wrong(f"was told of {data.high_watermark} after {high_watermark}")
        self._told[epoch] = (data.log_start_offset, data.high_watermark)

    def _wrong(self, sentence: str) -> None:
        self._client.problems.append(
            f"{self.name}, which has read {self._partition_key} up to {self.position}, {sentence}"
        )

    def _take(self, data: PartitionData) -> None:
        records = data.records
        if not records:
            return
        assert isinstance(records, IN_MEMORY)
        for batch in iter_batches(records):
            for record in iter_records(batch):
                if record.offset < self.position:
                    continue
                if record.offset >= data.high_watermark:
                    self._wrong(
                        f"was given offset {record.offset} at the high watermark "
                        f"{data.high_watermark}"
                    )
                value = bytes(record.value or b"").decode()
                self._client.history.polls.append(
                    Poll(self._partition_key, self.name, record.offset, value, self._is_fresh)
                )
                self._is_fresh = False
                self.position = record.offset + 1
