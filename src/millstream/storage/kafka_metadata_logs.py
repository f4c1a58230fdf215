"""Whether Apache Kafka's metadata log lies in any of the log directories, and what it says.

What reads it is loaded once there is one: in directories written only by Millstream there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from millstream.model.entities import EntityKind, EntityValue
from millstream.model.errors import StorageError
from millstream.model.topic import TopicId
from millstream.storage.directory import CLUSTER_METADATA_TOPIC
from millstream.storage.files import FileSystem

if TYPE_CHECKING:
    from millstream.storage.kafka_metadata import KafkaMetadata, KafkaTopic

DIRECTORY: Final = f"{CLUSTER_METADATA_TOPIC}-0"


class KafkaMetadataLogs:
    """What is recorded in Apache Kafka's metadata logs. They are looked for on first use."""

    def __init__(self, file_system: FileSystem, directories: Callable[[], Sequence[str]]) -> None:
        self._file_system = file_system
        self._directories = directories
        self._found: list[KafkaMetadata] | None = None
        """What each of them says, once they were looked for."""

    def find_topic(self, name: str, topic_id: TopicId | None) -> KafkaTopic | None:
        """Return a topic by its name, unless that belongs to another topic id. StorageError."""
        for each in reversed(self._read()):
            topic = each.topics.get(name)
            if topic is not None:
                return topic if topic_id in (None, topic.topic_id) else None
        return None

    def group_configs(self) -> Mapping[str, Mapping[str, str]]:
        """Return the settings of groups, by group. StorageError."""
        configs: dict[str, Mapping[str, str]] = {}
        for each in self._read():
            configs.update(each.group_configs)
        return configs

    def entities(self) -> Mapping[EntityKind, Mapping[str, EntityValue]]:
        """Return rules of access, quotas, SCRAM users and delegation tokens, by kind and key.

        StorageError.
        """
        entities: dict[EntityKind, dict[str, EntityValue]] = {}
        for each in self._read():
            for kind, values in each.entities.items():
                entities.setdefault(kind, {}).update(values)
        return entities

    def _read(self) -> Sequence[KafkaMetadata]:
        if self._found is None:
            with_log = [each for each in self._directories() if self._has_log(each)]
            found = []
            if with_log:
                from millstream.storage.kafka_metadata import read_kafka_metadata

                found = [read_kafka_metadata(self._file_system, each) for each in with_log]
            self._found = found
        return self._found

    def _has_log(self, directory: str) -> bool:
        try:
            return self._file_system.exists(f"{directory}/{DIRECTORY}")
        except OSError as error:
            raise StorageError(directory, f"{DIRECTORY}: {error}") from error
