"""The limit on open files, and what becomes of files when connections have taken the rest."""

from __future__ import annotations

import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from tests.descriptors import open_descriptors

from millstream.model.topic import TopicPartition
from millstream.storage.directory import PartitionDirectory, SegmentLocation
from millstream.storage.environment import LogEnvironment
from millstream.storage.file_records import FileRecords
from millstream.storage.files import LocalFileSystem
from millstream.storage.open_files import OpenFiles


def log_files(tmp_path: Path, environment: LogEnvironment, count: int) -> list[FileRecords]:
    made = []
    for index in range(count):
        place = PartitionDirectory(str(tmp_path), f"t-{index}", TopicPartition("t", index))
        environment.file_system.make_directory(place.path)
        records = FileRecords(environment, SegmentLocation(place, 0), 0)
        records.create(0)
        records.append(b"x" * 100, 100)
        made.append(records)
    return made


@contextmanager
def no_descriptor_left() -> Iterator[None]:
    """As when idle connections have taken all that logs have not."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ExitStack() as stack:
        highest = max(open_descriptors())
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, limits[1]))
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, limits)
        with suppress(OSError):
            while True:
                stack.enter_context(socket.socket())
        yield


def test_the_file_opened_longest_ago_is_closed(tmp_path: Path) -> None:
    environment = LogEnvironment(open_files=OpenFiles(2))
    files = log_files(tmp_path, environment, 3)
    assert len(environment.open_files) == 2
    assert files[0].chunk(0) == b"x" * 100


def test_a_file_is_opened_in_place_of_others_when_there_are_no_descriptors(tmp_path: Path) -> None:
    open_files = OpenFiles()
    files = LocalFileSystem(open_files.make_room)
    environment = LogEnvironment(file_system=files, open_files=open_files)
    logs = log_files(tmp_path, environment, 100)
    logs[0].close()
    path = logs[1].path
    with no_descriptor_left():
        assert logs[0].chunk(0) == b"x" * 100
        kept = [files.map(path) for _ in range(40)]
        assert len(files.scan(str(tmp_path))) == 100
        files.sync_directory(str(tmp_path))
        files.sync_all(str(tmp_path))
        for each in logs:
            assert each.chunk(0) == b"x" * 100
        assert 0 < len(open_files) < 70
    assert len(kept) == 40


def test_no_descriptor_and_nothing_to_close_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"a")
    files = LocalFileSystem(OpenFiles().make_room)
    with no_descriptor_left(), pytest.raises(OSError, match="Too many open files"):
        files.open(str(tmp_path / "a"))
