"""Writes what share groups give up to their dead-letter topics (KIP-1191).

The leader of a share partition calls :meth:`DeadLetterTopics.write` with what was given up, again
and again until nothing is left, and archives what is settled each time. One call writes one batch
(``dead_letter_batches``), to the partition of the dead-letter topic whose number is that of the
records', modulo their count.

What may succeed later is tried five times, with a growing delay; a topic that is out of reach then
holds up nobody any longer: everything that waits is let go. After an attempt of which nobody knows
the outcome, and after a change of leader, dead letters may be in the topic twice. Kafka:
``ShareGroupDLQStateManager``.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from millstream.model.errors import ErrorCode, KafkaError, MillstreamError
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
from millstream.runtime.pauses import pause
from millstream.runtime.replicas.partition import READ_UNCOMMITTED
from millstream.runtime.share.dead_letter_batches import MadeBatch, Origin, make_batch, split_at

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
"""Bytes of the log that are read at a time, if one batch is not larger."""
ACKS_ALL: Final = -1
BROKER_DEFAULT: Final = -1


class Settled(NamedTuple):
    """What nothing more is to be done for, and what is left.

    ``error`` says why there are no dead letters of what is settled; None where they are in the
    topic.
    """

    letters: Sequence[DeadLetters]
    rest: Sequence[DeadLetters]
    error: KafkaError | None


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
        runs: Sequence[DeadLetters],
        settings: ShareGroupSettings,
    ) -> Settled:
        """Write one batch of dead letters, of the first of ``runs``, which are in order.

        What can never be written is settled too, with the error: a batch that the topic refuses, or
        all where no batch could be written.
        """
        topic = settings.dead_letter_topic
        try:
            await self._with_attempts(partial(self._ensure_topic, topic))
        except KafkaError as error:
            return Settled(runs, (), error)
        made = await self._make(key, partition, runs, settings)
        try:
            await self._with_attempts(partial(self._produce, topic, partition, made.data))
        except KafkaError as error:
            if error.error.retriable:
                return Settled(runs, (), error)
            return Settled(made.letters, made.rest, error)
        return Settled(made.letters, made.rest, None)

    async def _make(
        self,
        key: SharePartitionKey,
        partition: Partition,
        runs: Sequence[DeadLetters],
        settings: ShareGroupSettings,
    ) -> MadeBatch:
        topic = partition.topic_partition.topic or topic_id_to_text(key.topic_id)
        origin = Origin(topic, key.partition, key.group_id)
        now, later, records = runs, runs[:0], None
        if settings.dead_letters_copy_record:
            records = await self._read(partition, runs[0].first_offset)
            if records is None:
                now, later = split_at(runs, self._end_of_unreadable(partition, runs[0]))
        made = await self._offload.run(
            LANE,
            partial(
                make_batch,
                origin,
                now,
                records,
                max_bytes=self._max_message_bytes(settings.dead_letter_topic),
                now_ms=int(self._clock.now_ms()),
            ),
        )
        return made._replace(rest=[*made.rest, *later])

    @staticmethod
    def _end_of_unreadable(partition: Partition, letters: DeadLetters) -> Offset:
        """Return up to where dead letters go without copies, if the first cannot be read: up to the
        start of the log, where that is why, or to the end of the run.
        """
        end = letters.last_offset + 1
        log_start = partition.log_start_offset
        return min(log_start, end) if log_start > letters.first_offset else end

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
                    f"the dead-letter topic {topic} does not exist, and "
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


def _refused(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, message)


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
