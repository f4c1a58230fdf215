from __future__ import annotations

import os
import select
from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream.server.log_outlet import LogOutlet

LINE = f"{'x' * 99}\n"


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reader, writer = os.pipe()
    yield reader, writer
    for each in (reader, writer):
        try:
            os.close(each)
        except OSError:
            continue


def read_all(reader: int) -> bytes:
    found = b""
    while select.select([reader], [], [], 0)[0]:
        found += os.read(reader, 1 << 20)
    return found


def test_a_pipe_that_nobody_reads_blocks_nobody(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    outlet = LogOutlet(writer, max_kept_bytes=10_000)
    count = 5_000  # half a million bytes: more than a pipe and the outlet take
    for _ in range(count):
        outlet.write(LINE)
    assert outlet.flush()
    found = b""
    while outlet.flush():
        found += read_all(reader)
    found += read_all(reader)
    outlet.write("the end\n")
    *lines, note, last = (found + read_all(reader)).decode().splitlines(keepends=True)
    assert set(lines) == {LINE}
    assert note == f"{count - len(lines)} lines of this log were dropped: nobody read it\n"
    assert last == "the end\n"


def test_a_long_line_comes_whole(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    outlet = LogOutlet(writer)
    line = "y" * 20_000 + "\n"
    outlet.write(line)
    assert read_all(reader).decode() == line


def test_a_reader_that_has_gone_is_no_failure(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    os.close(reader)
    outlet = LogOutlet(writer)
    outlet.write(LINE)
    assert not outlet.flush()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
def test_a_full_disk_is_no_failure() -> None:
    descriptor = os.open("/dev/full", os.O_WRONLY)
    try:
        outlet = LogOutlet(descriptor)
        outlet.write(LINE)
        assert not outlet.flush()
    finally:
        os.close(descriptor)


def test_the_end_waits_for_a_reader_and_not_for_ever(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millstream.server.log_outlet.LAST_WAIT_S", 0.01)
    reader, writer = pipe
    outlet = LogOutlet(writer)
    for _ in range(1_000):
        outlet.write(LINE)
    outlet.close()
    assert outlet.flush(), "nobody has read it"
    assert read_all(reader).startswith(LINE.encode())
