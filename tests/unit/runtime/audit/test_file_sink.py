"""The file of the audit log: whole lines, one failure told, records that wait for the disk."""

from __future__ import annotations

import fcntl
import logging
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.runtime.coordinator_site import HandClock

from millstream.runtime.audit.file_sink import RETRY_MS, FileSink
from millstream.runtime.offload import InlineOffload
from millstream.security.audit.machine import Destination, Entry
from millstream.storage.appended_file import AppendedFile


def entry(value: bytes) -> Entry:
    return Entry(Destination.FILE, 0, b"User:ann", value, {"produce.denied": 1})


class Site:
    def __init__(self, path: Path, max_bytes: int = 1_000) -> None:
        self.clock = HandClock()
        self.rooms = 0
        self.sink = FileSink(
            str(path),
            clock=self.clock,
            offload=InlineOffload(),
            max_bytes=max_bytes,
            on_room=self._has_room,
        )

    def _has_room(self) -> None:
        self.rooms += 1


def failing_write(monkeypatch: pytest.MonkeyPatch, room: int) -> Callable[[int], None]:
    """Let the disk have room for so many bytes; the returned function changes that."""
    real, left = os.write, [room]

    def write(descriptor: int, data: bytes) -> int:
        if not left[0]:
            raise OSError(28, "No space left on device")
        written = real(descriptor, bytes(data)[: left[0]])
        left[0] -= written
        return written

    monkeypatch.setattr(os, "write", write)

    def set_room(room: int) -> None:
        left[0] = room

    return set_room


def test_records_are_lines_that_only_the_owner_reads(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    site = Site(path)
    assert site.sink.add(entry(b"one"))
    assert site.sink.add(entry(b"two"))
    assert not path.exists(), "nothing is written where it is told"
    site.clock.settle()
    assert path.read_bytes() == b"one\ntwo\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert site.sink.is_empty
    assert site.rooms == 1


def test_a_file_that_was_moved_away_is_opened_again(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    site = Site(path)
    site.sink.add(entry(b"one"))
    site.clock.settle()
    path.rename(tmp_path / "audit.log.1")
    site.sink.add(entry(b"two"))
    site.clock.settle()
    assert (tmp_path / "audit.log.1").read_bytes() == b"one\ntwo\n"
    site.sink.reopen()
    site.sink.add(entry(b"three"))
    site.clock.settle()
    assert path.read_bytes() == b"three\n"


def test_a_missing_directory_is_told_once_and_records_wait(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "missing" / "audit.log"
    site = Site(path, max_bytes=7)
    with caplog.at_level(logging.WARNING):
        assert site.sink.add(entry(b"one"))
        site.clock.advance(10 * RETRY_MS)
        assert site.sink.add(entry(b"two!"))
        assert not site.sink.add(entry(b"three")), "there is no room for it"
        assert len(caplog.records) == 1
        assert "No such file or directory" in caplog.text
        assert site.sink.failures == 11
        path.parent.mkdir()
        site.clock.advance(RETRY_MS)
    assert path.read_bytes() == b"one\ntwo!\n"
    assert "is written to" in caplog.records[1].message
    assert site.sink.add(entry(b"three"))


def test_a_full_disk_leaves_whole_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "audit.log"
    site = Site(path)
    set_room = failing_write(monkeypatch, 10)
    for value in (b"one", b"two", b"three"):
        site.sink.add(entry(value))
    site.clock.settle()
    assert path.read_bytes() == b"one\ntwo\n"
    assert not site.sink.is_empty
    set_room(100)
    site.clock.advance(RETRY_MS)
    assert path.read_bytes() == b"one\ntwo\nthree\n"


def test_a_line_that_could_not_be_taken_back_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "audit.log"
    file = AppendedFile(str(path))
    set_room = failing_write(monkeypatch, 6)

    def refuse(descriptor: int, size: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(os, "ftruncate", refuse)
        count, error = file.append([b"one\n", b"two\n"])
    assert (count, error is None) == (1, False)
    set_room(100)
    assert file.append([b"two\n"]) == (1, None)
    assert path.read_bytes() == b"one\ntw\ntwo\n"


def test_what_a_kill_has_left_of_a_line_is_ended(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    path.write_bytes(b'{"half')
    assert AppendedFile(str(path)).append([b"one\n"]) == (1, None)
    assert path.read_bytes() == b'{"half\none\n'


def test_processes_that_share_a_file_write_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a failed write has left is taken back: nobody may have written behind it."""
    path = tmp_path / "audit.log"
    other = os.open(path, os.O_RDWR | os.O_CREAT)
    set_room = failing_write(monkeypatch, 6)
    file = AppendedFile(str(path))
    took: list[bool] = []

    def is_free() -> bool:
        try:
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        fcntl.flock(other, fcntl.LOCK_UN)
        return True

    truncate = os.ftruncate

    def look(descriptor: int, size: int) -> None:
        took.append(is_free())
        truncate(descriptor, size)

    with monkeypatch.context() as patched:
        patched.setattr(os, "ftruncate", look)
        count, _ = file.append([b"one\n", b"two\n"])
    assert (count, took) == (1, [False])
    assert is_free(), "after a failure"
    set_room(100)
    file.append([b"two\n"])
    assert is_free(), "after a write"
    os.close(other)


def test_a_pipe_without_a_reader_does_not_hold_the_thread(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    file = AppendedFile(str(path))
    for _ in range(40):
        _, error = file.append([b"x" * 4_000 + b"\n"])
        if error is not None:
            break
    assert error is not None, "a full pipe fails"
    file.close()


def test_what_was_not_written_is_returned_at_the_end(tmp_path: Path) -> None:
    site = Site(tmp_path / "missing" / "audit.log")
    site.sink.add(entry(b"one"))
    site.clock.settle()
    assert [each.value for each in site.sink.close()] == [b"one"]
    assert not site.clock.timers_running


def test_a_disk_that_fails_when_the_file_is_closed_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A quota of NFS is told of at the close."""
    path = tmp_path / "audit.log"
    site = Site(path)
    set_room = failing_write(monkeypatch, 0)
    real = os.close

    def close(descriptor: int) -> None:
        real(descriptor)
        raise OSError(122, "Disk quota exceeded")

    monkeypatch.setattr(os, "close", close)
    site.sink.add(entry(b"one"))
    site.clock.settle()
    set_room(100)
    site.clock.advance(RETRY_MS)
    assert path.read_bytes() == b"one\n"
    site.sink.close()


def test_what_is_under_way_at_the_end_begins_nothing_new(tmp_path: Path) -> None:
    """Neither another attempt nor another write: the file is closed, and what it lacks is
    counted.
    """
    path = tmp_path / "missing" / "audit.log"
    site = Site(path)
    site.sink.add(entry(b"one"))
    assert [each.value for each in site.sink.close()] == [b"one"]
    path.parent.mkdir()
    site.clock.settle()
    assert not site.clock.timers_running
    assert not path.exists()


def test_hurry_tries_at_once(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "audit.log"
    site = Site(path)
    site.sink.add(entry(b"one"))
    site.clock.settle()
    path.parent.mkdir()
    site.sink.hurry()
    assert path.read_bytes() == b"one\n"
