"""Reads Apache Kafka's own metadata log: which topics a directory of Kafka's has, their partitions
and settings, the settings of groups, rules of access, quotas, SCRAM users and delegation tokens.
Nothing in it is changed.

The directory ``__cluster_metadata-0`` holds snapshots and a log of changes (KIP-630, KIP-631)::

    00000000000000000120-0000000003.checkpoint   all records up to offset 120, exclusive, epoch 3
    00000000000000000000.log                     record batches, as in any partition

Both are batches of format version 2; control batches say where a snapshot begins and ends and who
votes. The newest snapshot is read, then the log from its offset on. Records of a metadata
transaction (KIP-868) that was aborted, or never ended, do not count.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from millstream.model.entities import EntityKind, EntityValue
from millstream.model.errors import MillstreamError, ProtocolError, StorageError
from millstream.model.offsets import LeaderEpoch, Offset
from millstream.model.topic import TopicId
from millstream.protocol.message import Message
from millstream.protocol.messages.kraft_records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UserScramCredentialRecord,
)
from millstream.records.batch import iter_batches
from millstream.records.record import read_records
from millstream.storage.directory import LOG, parse_file_name
from millstream.storage.files import FileSystem, read_file
from millstream.storage.kafka_entities import KafkaEntities
from millstream.storage.kafka_metadata_logs import DIRECTORY

_log = logging.getLogger(__name__)

FRAME_VERSION: Final = 1
BEGIN_TRANSACTION: Final = 23
END_TRANSACTION: Final = 24
ABORT_TRANSACTION: Final = 25
_MESSAGES: Final[dict[int, type[Message]]] = {
    2: TopicRecord,
    3: PartitionRecord,
    4: ConfigRecord,
    5: PartitionChangeRecord,
    9: RemoveTopicRecord,
    10: DelegationTokenRecord,
    11: UserScramCredentialRecord,
    14: ClientQuotaRecord,
    18: AccessControlEntryRecord,
    19: RemoveAccessControlEntryRecord,
    22: RemoveUserScramCredentialRecord,
    26: RemoveDelegationTokenRecord,
}
_TOPIC_RESOURCE: Final = 2
_GROUP_RESOURCE: Final = 32
_CHECKPOINT: Final = re.compile(r"(\d{20})-(\d{10})\.checkpoint\Z", re.ASCII)

_Frame: TypeAlias = tuple[int, int, bytes]
"""Key, version, and the message."""


@dataclass(slots=True)
class KafkaTopic:
    """A topic as the metadata log has it."""

    topic_id: TopicId
    leader_epochs: dict[int, LeaderEpoch] = field(default_factory=dict)
    """The leader epoch of each partition."""
    configs: dict[str, str] = field(default_factory=dict)
    """The settings that it has of its own."""

    @property
    def partition_count(self) -> int:
        """How many partitions it has."""
        return max(self.leader_epochs, default=-1) + 1


@dataclass(slots=True)
class KafkaMetadata:
    """What a metadata log says, by name."""

    topics: dict[str, KafkaTopic] = field(default_factory=dict)
    group_configs: dict[str, dict[str, str]] = field(default_factory=dict)
    """The settings that groups have of their own; a group need not exist to have some."""
    entities: dict[EntityKind, dict[str, EntityValue]] = field(default_factory=dict)
    """Rules of access, quotas, SCRAM users and delegation tokens, by kind and key."""


def read_kafka_metadata(file_system: FileSystem, log_directory: str) -> KafkaMetadata:
    """Return what a log directory's ``__cluster_metadata-0`` says.

    Reading ends before a batch that is damaged. Raises StorageError.
    """
    path = f"{log_directory}/{DIRECTORY}"
    replay = _Replay()
    try:
        for data, start in _files(file_system, path):
            for key, version, body in _frames(data, start, path):
                replay.take(key, version, body)
    except OSError as error:
        raise StorageError(log_directory, f"{DIRECTORY}: {error}") from error
    return replay.metadata()


def _files(file_system: FileSystem, path: str) -> Iterator[tuple[bytes, Offset]]:
    """Yield the newest snapshot, then each segment, with the offset from which it counts."""
    names = [entry.name for entry in file_system.scan(path) if not entry.is_directory]
    snapshots = sorted(name for name in names if _CHECKPOINT.match(name))
    start = 0
    if snapshots:
        start = int(snapshots[-1][:20])
        yield read_file(file_system, f"{path}/{snapshots[-1]}"), 0
    for name in sorted(names):
        parsed = parse_file_name(name)
        if parsed is not None and parsed[1] == LOG:
            yield read_file(file_system, f"{path}/{name}"), start


def _frames(data: bytes, start: Offset, path: str) -> Iterator[_Frame]:
    try:
        for batch in iter_batches(data):
            batch.ensure_valid()
            if batch.is_control or batch.next_offset <= start:
                continue
            for record in read_records(batch):
                if record.offset >= start and record.value is not None:
                    yield _frame(record.value)
    except MillstreamError as error:
        _log.warning("%s is not read to its end: %s", path, error)


def _frame(value: bytes) -> _Frame:
    frame_version, at = _unsigned_varint(value, 0)
    if frame_version != FRAME_VERSION:
        raise ProtocolError(f"frame version {frame_version} is not known")
    key, at = _unsigned_varint(value, at)
    version, at = _unsigned_varint(value, at)
    return key, version, value[at:]


def _unsigned_varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    for at in range(position, min(position + 5, len(data))):
        value |= (data[at] & 0x7F) << shift
        if data[at] < 0x80:
            return value, at + 1
        shift += 7
    raise ProtocolError("a record of the metadata log is cut off")


class _Replay:
    """The state that the records lead to."""

    def __init__(self) -> None:
        self._names: dict[TopicId, str] = {}
        self._topics: dict[TopicId, KafkaTopic] = {}
        self._configs: dict[str, dict[str, str]] = {}
        self._group_configs: dict[str, dict[str, str]] = {}
        self._entities = KafkaEntities()
        self._transaction: list[Message] | None = None

    def take(self, key: int, version: int, body: bytes) -> None:
        """Apply one record, or keep it until its transaction ends."""
        if key == BEGIN_TRANSACTION:
            self._transaction = []
        elif key in (END_TRANSACTION, ABORT_TRANSACTION):
            held, self._transaction = self._transaction or [], None
            if key == END_TRANSACTION:
                for message in held:
                    self._apply(message)
        elif key in _MESSAGES:
            message = _MESSAGES[key].decode_body(version, body)
            if self._transaction is None:
                self._apply(message)
            else:
                self._transaction.append(message)

    def _apply(self, message: Message) -> None:
        match message:
            case TopicRecord():
                self._names[message.topic_id] = message.name
                self._topics[message.topic_id] = KafkaTopic(message.topic_id)
            case PartitionRecord():
                epochs = self._epochs(message.topic_id)
                epochs[message.partition_id] = message.leader_epoch
            case PartitionChangeRecord():
                if message.leader != -2:
                    epochs = self._epochs(message.topic_id)
                    epochs[message.partition_id] = epochs.get(message.partition_id, -1) + 1
            case ConfigRecord():
                if message.resource_type == _TOPIC_RESOURCE:
                    _apply_config(self._configs, message)
                elif message.resource_type == _GROUP_RESOURCE:
                    _apply_config(self._group_configs, message)
            case RemoveTopicRecord():
                self._topics.pop(message.topic_id, None)
                self._configs.pop(self._names.pop(message.topic_id, ""), None)
            case _:
                self._entities.apply(message)

    def _epochs(self, topic_id: TopicId) -> dict[int, LeaderEpoch]:
        topic = self._topics.get(topic_id)
        return {} if topic is None else topic.leader_epochs

    def metadata(self) -> KafkaMetadata:
        """Return what is so after the last record."""
        topics = {}
        for topic_id, topic in self._topics.items():
            name = self._names[topic_id]
            topic.configs = self._configs.get(name, {})
            topics[name] = topic
        group_configs = {name: texts for name, texts in self._group_configs.items() if texts}
        return KafkaMetadata(topics, group_configs, self._entities.entities())


def _apply_config(configs: dict[str, dict[str, str]], message: ConfigRecord) -> None:
    texts = configs.setdefault(message.resource_name, {})
    if message.value is None:
        texts.pop(message.name, None)
    else:
        texts[message.name] = message.value
