"""The partitions of a broker over a file system in memory that fails when a test says so, with a
hand clock and an offload that waits to be released.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import TypeVar

from tests.memory_files import Contents, MemoryFile, MemoryFileSystem
from tests.unit.runtime.coordinator_site import HandClock, HeldOffload

from millstream.config.topic import TopicConfig
from millstream.model.broker import BrokerId
from millstream.model.deferred import Deferred
from millstream.model.leadership import PartitionState
from millstream.model.topic import TopicId, TopicPartition
from millstream.records.batch import Batch
from millstream.records.builder import BatchBuilder, BatchOptions
from millstream.runtime.metadata.metadata_cache import MetadataCache, TopicImage
from millstream.runtime.replicas.partition import READ_UNCOMMITTED, Partition
from millstream.runtime.replicas.partitions import Partitions
from millstream.storage.environment import LogEnvironment
from millstream.storage.files import File
from millstream.storage.log import AppendResult
from millstream.storage.log_manager import LogManager

T = TypeVar("T")
BROKER = BrokerId(1)
OTHER_BROKER = BrokerId(2)
WHOLE = 1 << 30


class FailingFiles(MemoryFileSystem):
    """Fails with EIO in every step of ``broken`` ("write", "sync", "read", "rename" …) below a
    directory.
    """

    def __init__(self) -> None:
        super().__init__()
        self.broken: set[str] = set()
        self.below = "/"
        self.hook = self._fail

    def _fail(self, step: str, path: str) -> None:
        if step in self.broken and path.startswith(self.below):
            raise OSError(errno.EIO, f"{step} fails", path)

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> File:
        super().open(path, create=create, writable=writable)
        contents = self._find(path)
        assert isinstance(contents, Contents)
        return _FailingFile(self, path, contents)


class _FailingFile(MemoryFile):
    def read_at(self, position: int, size: int) -> bytes:
        self._owner.hook("read", self._path)
        return super().read_at(position, size)


class CountingOffload(HeldOffload):
    """Notes in which lanes there was work."""

    def __init__(self) -> None:
        super().__init__()
        self.lanes: list[str] = []

    def run(self, lane: str, function: Callable[[], T]) -> Deferred[T]:
        self.lanes.append(lane)
        return super().run(lane, function)


class LogSite:
    """Partitions of one broker over one or more log directories."""

    def __init__(self, *directories: str, offload: HeldOffload | None = None) -> None:
        self.clock = HandClock()
        self.offload = offload or HeldOffload()
        self.files = FailingFiles()
        self.metadata = MetadataCache("cluster")
        self.failed_directories: list[str] = []
        self._directories = directories or ("/logs",)
        self._open()

    def _open(self) -> None:
        self.log_manager = LogManager(
            self._directories, LogEnvironment(file_system=self.files), broker_id=BROKER
        )
        self.partitions = Partitions(
            BROKER,
            clock=self.clock,
            offload=self.offload,
            log_manager=self.log_manager,
            metadata=self.metadata,
            on_directory_failed=self.failed_directories.append,
        )
        self.log_manager.lock()
        self.log_manager.start(config_of=lambda _, __: TopicConfig(), now_ms=self.clock.now_ms())

    def restart(self) -> None:
        """Stop without a word, as a kill does, and read the directories again."""
        self._open()
        for image in list(self.metadata.topics()):
            self.partitions.topic_changed(image, created=False)

    def create(
        self,
        name: str = "t",
        count: int = 1,
        *,
        topic_id: bytes | None = None,
        leader: BrokerId = BROKER,
        epoch: int = 0,
        **configs: str,
    ) -> TopicImage:
        """Make a topic; settings are given with underscores for dots."""
        return self.show(
            name, count, topic_id=topic_id, leader=leader, epoch=epoch, created=True, **configs
        )

    def show(
        self,
        name: str = "t",
        count: int = 1,
        *,
        topic_id: bytes | None = None,
        leader: BrokerId = BROKER,
        epoch: int = 0,
        created: bool = False,
        **configs: str,
    ) -> TopicImage:
        """Show the partitions an image, as the controller does."""
        config = TopicConfig({key.replace("_", "."): text for key, text in configs.items()})
        state = PartitionState((leader,), leader, epoch, (leader,))
        known = TopicId(topic_id or name.encode().ljust(16, b"."))
        image = TopicImage(name, known, (state,) * count, config)
        self.metadata.update(image)
        self.partitions.topic_changed(image, created=created)
        return image

    def delete(self, name: str = "t") -> None:
        image = self.metadata.remove(name)
        assert image is not None
        self.partitions.topic_deleted(image)

    def partition(self, name: str = "t", index: int = 0) -> Partition:
        return self.partitions.get(name, index)

    def directory_of(self, name: str, index: int = 0) -> str:
        log = self.log_manager.get(TopicPartition(name, index))
        assert log is not None
        return log.log_directory


def batch(*values: bytes, **options: int | bool) -> Batch:
    builder = BatchBuilder(BatchOptions(**options))  # type: ignore[arg-type]
    for value in values:
        builder.append(1_700_000_000_000, None, value)
    return Batch(memoryview(bytearray(builder.build())))


def append(partition: Partition, *values: bytes, **options: int | bool) -> AppendResult:
    return partition.append(batch(*values, **options), 1_700_000_000_000)


class Outcomes(list[str]):
    """What callbacks were told: "ok" or the name of an error, in order."""

    def note(self, name: str = "") -> Callable[[object], None]:
        def callback(error: object) -> None:
            told = "ok" if error is None else getattr(error, "error", error)
            self.append(name + getattr(told, "name", str(told)))

        return callback


def write(partition: Partition, outcomes: Outcomes, *values: bytes, name: str = "") -> int:
    """Append a batch, note when it is committed, and return its last offset."""
    last_offset = append(partition, *(values or (b"v",))).last_offset
    partition.wait_for_commit(last_offset, outcomes.note(name))
    return last_offset


def read(partition: Partition, offset: int = 0, isolation: int = READ_UNCOMMITTED) -> bytes:
    """Return what a consumer gets."""
    found = partition.read(offset, max_bytes=WHOLE, isolation=isolation, min_one_batch=True)
    return b"" if found.records is None else found.records.read()
