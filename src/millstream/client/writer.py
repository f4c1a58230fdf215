"""Records one at a time into batches, and the batches to their partitions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from millstream.client.partitioner import partition_for_key
from millstream.client.produce import BatchSender
from millstream.model.topic import TopicPartition
from millstream.records.builder import BatchBuilder, BatchOptions
from millstream.records.compression import Codec
from millstream.records.record import Header

DEFAULT_BATCH_BYTES: Final = 128 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterSettings:
    """How records become batches."""

    codec: Codec = Codec.NONE
    batch_bytes: int = DEFAULT_BATCH_BYTES
    """A batch is sent when it is larger than this."""


class RecordWriter:
    """Writes to one topic. A record goes to the partition given, else to its key's; records
    without a key fill a batch of one partition and then one of the next.
    """

    def __init__(
        self,
        sender: BatchSender,
        partitions: Sequence[TopicPartition],
        settings: WriterSettings | None = None,
    ) -> None:
        self._sender = sender
        self._partitions = list(partitions)
        self._settings = settings or WriterSettings()
        self._batches: dict[TopicPartition, BatchBuilder] = {}
        self._sticky = 0

    def write(
        self,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[Header] = (),
        *,
        partition: int | None = None,
    ) -> None:
        """Add a record; sends its batch once that is large enough."""
        place = self._place(key, partition)
        builder = self._batches.get(place)
        if builder is None:
            builder = self._batches[place] = BatchBuilder()
        builder.append(timestamp_ms, key, value, headers)
        if builder.size >= self._settings.batch_bytes:
            self._send(place)

    def send_waiting(self) -> None:
        """Send every batch that has records, full or not; does not wait for answers."""
        for place in list(self._batches):
            self._send(place)

    def close(self) -> None:
        """Close the sender; what was not flushed is lost."""
        self._sender.close()

    def flush(self) -> None:
        """Send what waits, and wait until the brokers have all of it."""
        self.send_waiting()
        self._sender.flush()

    def _place(self, key: bytes | None, partition: int | None) -> TopicPartition:
        if partition is not None:
            return TopicPartition(self._partitions[0].topic, partition)
        if key is not None:
            return self._partitions[partition_for_key(key, len(self._partitions))]
        return self._partitions[self._sticky]

    def _send(self, place: TopicPartition) -> None:
        builder = self._batches.pop(place)
        identity = self._sender.identity(place, builder.count)
        builder.options = BatchOptions(
            codec=self._settings.codec,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            base_sequence=identity.base_sequence,
        )
        self._sender.send(place, builder.build(), builder.count)
        if place == self._partitions[self._sticky]:
            self._sticky = (self._sticky + 1) % len(self._partitions)
