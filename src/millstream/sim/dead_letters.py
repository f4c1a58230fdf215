"""The dead-letter topic of a share group (KIP-1191) in a simulation, and what must hold of it.

What must not be (:func:`check_dead_letters`), of what the logs hold in the end, when the group has
got to the end of them:

* one that was rejected, or that nobody has tried to accept, without a dead letter,
* one whose acceptance was acknowledged, with a dead letter that says it was rejected,
* a dead letter of a record that is not there, or with another value than its record's.

A leader that cannot reach the topic for long gives up and says so in its log: those are known here
(:class:`GivenUpLog`) and need no dead letter. Several dead letters of one record are allowed.

An acknowledgement of what lies below the start offset is passed over and answered without an error,
as in Kafka. So a record of which both ways were acknowledged (by members that held it one after the
other) was settled in the one that came first, and either will do.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from millstream.config.group import (
    DEAD_LETTER_COPY_RECORD,
    DEAD_LETTER_TOPIC,
    SHARE_DELIVERY_COUNT_LIMIT,
)
from millstream.history.checker import Value
from millstream.model.features import SHARE_VERSION
from millstream.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig
from millstream.records.batch import iter_batches
from millstream.records.record import iter_records
from millstream.runtime.replicas.partition import READ_UNCOMMITTED, Partition
from millstream.runtime.share import led_share_partition
from millstream.runtime.share.dead_letter_batches import MESSAGE, OFFSET, PARTITION
from millstream.runtime.share.led_share_partition import LedSharePartition
from millstream.runtime.share.share_settings import WITH_DEAD_LETTERS
from millstream.share.dead_letters import DeadLetterCause

if TYPE_CHECKING:
    from millstream.runtime.metadata.metadata_cache import MetadataCache
    from millstream.sim.share_consumers import ShareHistory

DEAD_LETTERS: Final = "dlq.sim"
DEAD_LETTER_PARTITIONS: Final = 2
DEAD_LETTER_LIMIT: Final = 2
"""How often a record is delivered: so seldom that some are given up for that."""
GROUP_SETTINGS: Final = {
    DEAD_LETTER_TOPIC: DEAD_LETTERS,
    DEAD_LETTER_COPY_RECORD: "true",
    SHARE_DELIVERY_COUNT_LIMIT: str(DEAD_LETTER_LIMIT),
}
_READ_BYTES: Final = 1 << 20
_RANGE: Final = re.compile(r"(\d+)(?: to (\d+))?")

RecordKey = tuple[int, int]
"""Partition and offset."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """What a dead letter says of a record."""

    partition: int
    offset: int
    message: str
    value: Value | None


def dead_letter_topic(min_isr: int) -> CreatableTopic:
    """Return the topic as it is to be made."""
    settings = {
        "errors.deadletterqueue.group.enable": "true",
        "min.insync.replicas": str(min_isr),
    }
    return CreatableTopic(
        name=DEAD_LETTERS,
        num_partitions=DEAD_LETTER_PARTITIONS,
        replication_factor=3,
        assignments=[],
        configs=[CreatableTopicConfig(name=name, value=text) for name, text in settings.items()],
    )


def is_in_force(metadata: MetadataCache, group: str) -> bool:
    """Tell whether a broker knows that the group has a dead-letter topic."""
    settings = metadata.group_configs.get(group, {})
    return (
        metadata.features.level(SHARE_VERSION) >= WITH_DEAD_LETTERS
        and settings.get(DEAD_LETTER_TOPIC) == DEAD_LETTERS
    )


@dataclass
class GivenUpLog(logging.Handler):
    """The records of which leaders have said that they have no dead letter."""

    records: set[RecordKey] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__init__(logging.WARNING)

    def emit(self, record: logging.LogRecord) -> None:
        """Take note of a line that names them."""
        match record.args:
            case (str(offsets), LedSharePartition() as led, _):
                for first, last in _RANGE.findall(offsets):
                    for offset in range(int(first), int(last or first) + 1):
                        self.records.add((led.key.partition, offset))

    __hash__ = logging.Handler.__hash__

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Hear what leaders say meanwhile."""
        logger = logging.getLogger(led_share_partition.__name__)
        logger.addHandler(self)
        try:
            yield
        finally:
            logger.removeHandler(self)


def read_dead_letters(replicas: Iterable[Partition]) -> list[DeadLetter]:
    """Return the dead letters that are committed in some replicas."""
    return [each for replica in replicas for each in _read(replica)]


def _read(replica: Partition) -> Iterator[DeadLetter]:
    position = replica.log_start_offset
    while position < replica.visible_end(READ_UNCOMMITTED):
        read = replica.read(
            position, max_bytes=_READ_BYTES, isolation=READ_UNCOMMITTED, min_one_batch=True
        )
        if read.records is None:
            return
        for batch in iter_batches(read.records.read()):
            position = batch.next_offset
            for record in iter_records(batch):
                texts = {name: (text or b"").decode() for name, text in record.headers}
                value = None if record.value is None else record.value.decode()
                yield DeadLetter(int(texts[PARTITION]), int(texts[OFFSET]), texts[MESSAGE], value)


def check_dead_letters(
    history: ShareHistory,
    letters: Iterable[DeadLetter],
    given_up: set[RecordKey],
    present: Mapping[int, Mapping[int, Value]],
) -> list[str]:
    """Return what must not be. ``present`` are the records of the partitions that have lost none,
    and of which the group has got to the end.
    """
    problems: list[str] = []
    found: set[RecordKey] = set()
    for letter in letters:
        key = letter.partition, letter.offset
        found.add(key)
        records = present.get(letter.partition)
        if records is not None and letter.offset not in records:
            problems.append(f"{letter} is of no record")
        elif records is not None and letter.value not in (None, records[letter.offset]):
            problems.append(f"{letter} has another value than {records[letter.offset]}")
        is_accepted = key in history.accepted and key not in history.rejected
        if is_accepted and letter.message == DeadLetterCause.REJECTED.value:
            problems.append(f"{letter} is of a record whose acceptance was acknowledged")
    for index, records in present.items():
        for offset in records:
            key = index, offset
            if key in found or key in given_up:
                continue
            if key in history.rejected and key not in history.accepted:
                problems.append(f"{offset} of partition {index} was rejected: no dead letter")
            elif key not in history.tried_to_accept:
                problems.append(f"{offset} of partition {index} was let go: no dead letter")
    return problems
