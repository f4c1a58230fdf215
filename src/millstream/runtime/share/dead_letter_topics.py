"""Writes what share groups give up to their dead-letter topics (KIP-1191).

The leader of a share partition calls :meth:`DeadLetterTopics.write` for one run of offsets after
the other, and archives them then. A dead letter has headers that say where its record is and why it
was given up and, where the group wants copies, the record's key and value. It goes to the partition
of the dead-letter topic whose number is that of its record's, modulo their count.

What may succeed later is tried five times, with a growing delay. After an attempt of which nobody
knows the outcome, and after a change of leader, dead letters may be in the topic twice. Kafka:
``ShareGroupDLQStateManager``, ``ShareGroupDLQRecordFetcher``.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from millstream.model.errors import CorruptLogError, ErrorCode, KafkaError, MillstreamError
from millstream.model.offsets import Offset
from millstream.model.topic import topic_id_to_text
from millstream.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from millstream.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from millstream.records.batch import iter_batches
from millstream.records.builder import BatchBuilder
from millstream.records.record import Record, iter_records
from millstream.runtime.pauses import pause
from millstream.runtime.replicas.partition import READ_UNCOMMITTED

if TYPE_CHECKING:
    from millstream.config.dynamic import DynamicConfig
    from millstream.model.broker import BrokerId
    from millstream.model.clock import Clock
    from millstream.model.deferred import Deferred
    from millstream.protocol.message import Request, Response
    from millstream.runtime.metadata.metadata_cache import MetadataCache, TopicImage
    from millstream.runtime.offload import Offload
    from millstream.runtime.replicas.partition import Partition
    from millstream.runtime.share.share_settings import ShareGroupSettings
    from millstream.share.dead_letters import DeadLetters
    from millstream.share.state import SharePartitionKey
    from millstream.storage.file_slice import FileSlice

log = logging.getLogger(__name__)

LANE: Final = "dead-letters"
"""Where records are read and decompressed, off the loop."""

REQUEST_TIMEOUT_MS: Final = 15_000
COMMIT_TIMEOUT_MS: Final = 10_000
"""The leader answers before the request times out."""
MAX_ATTEMPTS: Final = 5
FIRST_BACKOFF_MS: Final = 1_000.0
MAX_BACKOFF_MS: Final = 30_000.0

READ_BYTES: Final = 1 << 20
"""Bytes of the log that are read, and of records that are decompressed at most, at a time."""
MAX_RECORDS: Final = 1_000
"""Dead letters in one batch at most."""
_BATCH_RESERVE: Final = 128
"""Bytes of a batch that are not its records'."""

ACKS_ALL: Final = -1
BROKER_DEFAULT: Final = -1


class _Round(NamedTuple):
    """One batch of dead letters, and the offset from which the next one goes on."""

    batch: bytes
    next_offset: Offset


class DeadLetterTopics:
    """Writes dead letters for all share partitions that this broker leads."""

    def __init__(
        self,
        *,
        clock: Clock,
        offload: Offload,
        metadata: MetadataCache,
        config: DynamicConfig,
        broker_id: BrokerId,
        send_request: Callable[[BrokerId, Request, int], Deferred[Response]],
    ) -> None:
        self._clock = clock
        self._offload = offload
        self._metadata = metadata
        self._config = config
        self._broker_id = broker_id
        self._send_request = send_request

    async def write(
        self,
        key: SharePartitionKey,
        partition: Partition,
        letters: DeadLetters,
        settings: ShareGroupSettings,
    ) -> None:
        """Write a dead letter for each offset; raises KafkaError where that is not possible.

        A record that the log does not have any more, or that cannot be read, has a dead letter
        without its key and value.
        """
        topic = settings.dead_letter_topic
        await self._with_attempts(partial(self._ensure_topic, topic))
        headers = _headers(key, partition, letters)
        offset = letters.first_offset
        while offset <= letters.last_offset:
            records = None
            if settings.dead_letters_copy_record:
                records = await self._read(partition, offset)
            most = self._max_message_bytes(topic) - _BATCH_RESERVE
            now_ms = int(self._clock.now_ms())
            last = letters.last_offset
            made = await self._offload.run(
                LANE, partial(_make_batch, headers, offset, last, records, most, now_ms)
            )
            await self._with_attempts(partial(self._produce, topic, partition, made.batch))
            offset = made.next_offset

    def _max_message_bytes(self, topic: str) -> int:
        image = self._metadata.topic(topic)
        config = self._config.current.topic_defaults if image is None else image.config
        return config.max_message_bytes

    async def _read(self, partition: Partition, offset: Offset) -> FileSlice | None:
        """Return what the log has from an offset on; None where it cannot be read."""
        for is_last in (False, True):
            try:
                read = partition.read(
                    offset,
                    max_bytes=READ_BYTES,
                    isolation=READ_UNCOMMITTED,
                    min_one_batch=True,
                    wait_for_disk=is_last,
                )
                if read.cold is None:
                    return read.records
                await self._offload.run(LANE, read.cold.run)
            except MillstreamError as error:
                log.info("a dead letter of %s has no copy of its record: %s", partition, error)
                return None
        return None

    async def _with_attempts(self, step: Callable[[], Awaitable[None]]) -> None:
        for attempt in range(MAX_ATTEMPTS):
            try:
                await step()
            except KafkaError as error:
                if not error.error.retriable or attempt == MAX_ATTEMPTS - 1:
                    raise
            else:
                return
            await pause(self._clock, min(FIRST_BACKOFF_MS * 2**attempt, MAX_BACKOFF_MS))

    # The topic

    async def _ensure_topic(self, topic: str) -> None:
        """Check that the topic may be used, and create it where that is asked for."""
        config = self._config.current
        prefix = config.errors_deadletterqueue_topic_name_prefix
        if not topic:
            raise _refused("the group has no dead-letter topic any more")
        if topic.startswith("__") or not topic.startswith(prefix):
            raise _refused(
                f"the name of the dead-letter topic {topic} does not begin with {prefix!r} "
                "(errors.deadletterqueue.topic.name.prefix)"
            )
        image = self._metadata.topic(topic)
        if image is None:
            if not config.errors_deadletterqueue_auto_create_topics_enable:
                raise _refused(
                    f"the dead-letter topic {topic} is not there, and "
                    "errors.deadletterqueue.auto.create.topics.enable is false"
                )
            await self._create(topic)
        elif not image.config.errors_deadletterqueue_group_enable:
            raise _refused(
                f"errors.deadletterqueue.group.enable of the dead-letter topic {topic} is false"
            )

    async def _create(self, topic: str) -> None:
        wanted = {
            "errors.deadletterqueue.group.enable": "true",
            "message.timestamp.type": "LogAppendTime",
        }
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=topic,
                    num_partitions=BROKER_DEFAULT,
                    replication_factor=BROKER_DEFAULT,
                    assignments=[],
                    configs=[
                        CreatableTopicConfig(name=name, value=value)
                        for name, value in wanted.items()
                    ],
                )
            ],
            timeout_ms=COMMIT_TIMEOUT_MS,
        )
        response = await self._send_request(self._broker_id, request, REQUEST_TIMEOUT_MS)
        assert isinstance(response, CreateTopicsResponse)
        (result,) = response.topics
        error = ErrorCode.of(result.error_code)
        if error not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise KafkaError(error, f"the dead-letter topic {topic}: {result.error_message or ''}")

    # Dead letters

    async def _produce(self, topic: str, partition: Partition, batch: bytes) -> None:
        image = self._metadata.topic(topic)
        if image is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic} is not there")
        index = partition.topic_partition.partition % len(image.partitions)
        leader = image.partitions[index].leader
        if not self._metadata.is_reachable(leader):
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{index} has no leader")
        request = _produce_request(image, index, batch)
        response = await self._send_request(leader, request, REQUEST_TIMEOUT_MS)
        assert isinstance(response, ProduceResponse)
        answer = response.responses[0].partition_responses[0]
        if answer.error_code:
            raise KafkaError(
                ErrorCode.of(answer.error_code), f"{topic}-{index}: {answer.error_message or ''}"
            )


TOPIC: Final = "__dlq.errors.topic"
PARTITION: Final = "__dlq.errors.partition"
OFFSET: Final = "__dlq.errors.offset"
GROUP: Final = "__dlq.errors.group"
DELIVERY_COUNT: Final = "__dlq.errors.delivery.count"
MESSAGE: Final = "__dlq.errors.message"


def _headers(
    key: SharePartitionKey, partition: Partition, letters: DeadLetters
) -> Mapping[str, str]:
    """Return the headers of a run of dead letters, in Kafka's order; the offset is empty."""
    return {
        TOPIC: partition.topic_partition.topic or topic_id_to_text(key.topic_id),
        PARTITION: str(key.partition),
        OFFSET: "",
        GROUP: key.group_id,
        DELIVERY_COUNT: str(letters.delivery_count),
        MESSAGE: letters.cause.value,
    }


def _refused(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, message)


def _make_batch(
    headers: Mapping[str, str],
    offset: Offset,
    last: Offset,
    records: FileSlice | None,
    most: int,
    now_ms: int,
) -> _Round:
    """Return a batch that begins with the dead letter of ``offset`` and has ``most`` bytes of
    records at most; one record that is larger is not copied. Any thread.
    """
    copies = {} if records is None else _copies(records, offset, last)
    if copies:
        last = max(copies)  # what lies behind is read in the next round
    builder = BatchBuilder()
    while offset <= last and builder.count < MAX_RECORDS:
        record = copies.get(offset)
        key, value = (None, None) if record is None else (record.key, record.value)
        own = tuple(
            (name, text.encode()) for name, text in {**headers, OFFSET: str(offset)}.items()
        )
        header_bytes = sum(len(name) + len(text) + 8 for name, text in own)
        size = header_bytes + len(key or b"") + len(value or b"")
        if size > most:
            key = value = None
            size = header_bytes
        if builder.count and builder.size + size > most:
            break
        builder.append(now_ms, key, value, own)
        offset += 1
    return _Round(builder.build(), offset)


def _copies(records: FileSlice, first: Offset, last: Offset) -> Mapping[Offset, Record]:
    """Return the records between two offsets that can be read, by offset."""
    return {each.offset: each for each in _records(records) if first <= each.offset <= last}


def _records(records: FileSlice) -> Iterator[Record]:
    try:
        for batch in iter_batches(records.read()):
            if not batch.is_control:
                yield from iter_records(batch, READ_BYTES)
    except CorruptLogError:
        return


def _produce_request(image: TopicImage, index: int, batch: bytes) -> ProduceRequest:
    return ProduceRequest(
        acks=ACKS_ALL,
        timeout_ms=COMMIT_TIMEOUT_MS,
        topic_data=[
            TopicProduceData(
                name=image.name,
                topic_id=image.topic_id,
                # The leader numbers the records where they lie.
                partition_data=[
                    PartitionProduceData(index=index, records=memoryview(bytearray(batch)))
                ],
            )
        ],
    )
