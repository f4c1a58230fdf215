"""Recovery leaves alone the files that hold already what it would write, and only those."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.storage.support import append, close, create_log, read_values, reopen

from millstream.config.topic import TopicConfig

CONFIG = TopicConfig({"internal.segment.bytes": "400", "index.interval.bytes": "100"})
COUNT = 12


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Write a log of several segments, with a producer, and close it."""
    log = create_log(tmp_path, CONFIG)
    for number in range(COUNT):
        append(log, b"v" * 80, producer_id=7, producer_epoch=0, base_sequence=number)
    close(log)
    return tmp_path / "orders-0"


def recover(directory: Path) -> None:
    """Recover the log, see that it is whole, and close it."""
    log = reopen(directory.parent, CONFIG, clean=False)
    assert len(read_values(log)) == COUNT
    assert log.log_end_offset == COUNT
    close(log)


def derived(directory: Path, *suffixes: str) -> list[Path]:
    """Return the files with a suffix, by name, without those of the last segment."""
    last = max(directory.glob("*.log")).stem
    found = (path for path in directory.iterdir() if path.suffix in suffixes)
    return sorted(path for path in found if path.stem < last)


def test_what_is_sound_is_not_written_again(directory: Path) -> None:
    recover(directory)
    paths = derived(directory, ".index", ".timeindex", ".snapshot")
    assert {path.suffix for path in paths} == {".index", ".timeindex", ".snapshot"}
    before = [(path, path.stat().st_ino, path.stat().st_mtime_ns) for path in paths]
    recover(directory)
    assert [(path, path.stat().st_ino, path.stat().st_mtime_ns) for path in paths] == before


@pytest.mark.parametrize("damage", [b"", b"\0" * 48, b"\1", b"flip", b"gone"])
def test_a_missing_index_is_rebuilt(directory: Path, damage: bytes) -> None:
    recover(directory)
    paths = derived(directory, ".index", ".timeindex", ".snapshot")
    before = [path.read_bytes() for path in paths]
    assert all(before)
    for path, data in zip(paths, before, strict=True):
        if damage == b"gone":
            path.unlink()
        elif damage == b"flip":
            path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        else:
            path.write_bytes(data + damage if damage else b"")
    recover(directory)
    assert [path.read_bytes() for path in paths] == before


def test_a_snapshot_of_what_is_not_there_goes(directory: Path) -> None:
    recover(directory)
    strays = [directory / f"{offset:020d}.snapshot" for offset in (1, COUNT + 5)]
    for stray in strays:
        assert not stray.exists()
        stray.write_bytes(max(directory.glob("*.snapshot")).read_bytes())
    recover(directory)
    assert not any(stray.exists() for stray in strays)
