"""A file is known again by its content, whatever a rotation has done to it."""

from __future__ import annotations

import gzip
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from millstream.cli.failures import CommandFailedError
from millstream.cli.followed_files import FollowedFiles, new_position
from millstream.cli.ingest_files import files_of, open_source, rotated_beside
from millstream.cli.ingest_positions import Mark, Position, Positions
from millstream.cli.line_file import LineFile, TruncatedError

DATA = b"".join(b"line %d\n" % number for number in range(1000))
READ = 4000


def read_to(path: Path, size: int) -> Position:
    """Return the position of a file of which ``size`` bytes were ingested."""
    mark = Mark()
    mark.advance(path.read_bytes()[:size], path.read_bytes()[:size].count(b"\n"))
    return new_position("host", "t", "owner", path).at(mark, path, path.stat())


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "app.log"
    path.write_bytes(DATA)
    return path


def positions(*each: Position) -> Positions:
    return Positions({position.file_id: position for position in each})


def rest(path: Path, known: Positions) -> bytes | None:
    found = known.find(path)
    if found is None:
        return None
    _, source, mark = found
    assert mark.position == READ
    data = source.read(1 << 20)
    source.close()
    return data


def test_a_record_there_and_back(log: Path) -> None:
    position = read_to(log, READ)
    assert Position.read(position.file_id.encode(), position.value()) == position


@pytest.mark.parametrize("read", [1, 500, 1024, 1025, READ, len(DATA)])
def test_a_file_that_grew_is_read_from_where_it_was_left(log: Path, read: int) -> None:
    known = positions(read_to(log, read))
    with log.open("ab") as file:
        file.write(b"more\n")
    found = known.find(log)
    assert found is not None
    assert found[1].read(1 << 20) == (DATA + b"more\n")[read:]
    found[1].close()


def test_names_and_inodes_that_are_used_again_are_not_trusted(log: Path) -> None:
    known = positions(read_to(log, READ))
    for content in (
        b"",
        b"other\n",
        DATA[: READ - 1],
        b"x" + DATA[1:],
        DATA[: READ - 5] + b"x" * 99,
    ):
        log.write_bytes(content)  # the same inode
        assert known.find(log) is None


def test_a_restored_copy_at_the_same_path_is_the_same_file(log: Path) -> None:
    known = positions(read_to(log, READ))
    log.unlink()
    log.write_bytes(DATA)
    assert rest(log, known) == DATA[READ:]


@pytest.mark.parametrize("name", ["app.log.1", "app.log-20260131", "app.log.old", "elsewhere"])
def test_a_renamed_file_is_the_same_file(log: Path, name: str) -> None:
    known = positions(read_to(log, READ))
    renamed = log.rename(log.with_name(name))
    log.write_bytes(b"new\n")
    assert rest(renamed, known) == DATA[READ:]
    assert known.find(log) is None


def test_a_compressed_file_is_the_same_file(log: Path) -> None:
    known = positions(read_to(log, READ))
    packed = log.with_name("app.log.1.gz")
    packed.write_bytes(gzip.compress(log.read_bytes()))
    log.unlink()
    assert rest(packed, known) == DATA[READ:]


def test_a_copy_that_was_truncated_goes_on_in_the_copy(log: Path) -> None:
    known = positions(read_to(log, READ))
    copied = Path(shutil.copy2(log, log.with_name("app.log.1")))
    os.truncate(log, 0)
    assert rest(copied, known) == DATA[READ:]


def test_a_copy_of_a_file_that_is_still_there_is_another_file(log: Path) -> None:
    known = positions(read_to(log, READ))
    assert known.find(Path(shutil.copy2(log, log.with_name("copy.log")))) is None


def test_what_is_beside_a_log(log: Path) -> None:
    for number, name in enumerate(
        ["app.log.2.gz", "app.log.1", "app.log-20260131.zst", "app.log.old", "app.log.gz"]
    ):
        other = log.with_name(name)
        other.write_bytes(b"")
        os.utime(other, (number, number))
    for name in ("app.log.swp", "app.logger", "app", "app.log.bak", "app.log.1x"):
        log.with_name(name).write_bytes(b"")
    assert [each.name for each in rotated_beside(log)] == [
        "app.log.2.gz",
        "app.log.1",
        "app.log-20260131.zst",
        "app.log.old",
        "app.log.gz",
    ]


def test_where_reading_stopped_is_found_and_what_was_rotated_later(log: Path) -> None:
    known = positions(read_to(log, READ))
    contents = [
        ("app.log.4", b"before\n"),
        ("app.log.3", DATA),
        ("app.log.2", b"later\n"),
        ("app.log.1", b"last\n"),
        ("app.log", b"now\n"),
    ]
    for age, (name, content) in enumerate(contents):
        path = log.with_name(name)
        path.unlink(missing_ok=True)
        path.write_bytes(content)
        os.utime(path, (1000 + age, 1000 + age))
    files = FollowedFiles([str(log)], known, lambda path: new_position("host", "t", "owner", path))
    found = []
    for each in files.open_all(follow=False):
        taken = each.read(1 << 20)
        assert taken is not None
        found.append((each.path.name, taken.data))
    files.close_all()
    assert found == [
        ("app.log.3", DATA[READ:]),
        ("app.log.2", b"later\n"),
        ("app.log.1", b"last\n"),
        ("app.log", b"now\n"),
    ]


def test_a_log_that_was_truncated_twice_is_followed_through_its_copies(log: Path) -> None:
    known = positions(read_to(log, READ))
    first = Path(shutil.copy2(log, log.with_name("app.log.1")))
    moved = known.find(first)
    assert moved is not None
    moved[1].close()
    known.note(moved[0].at(moved[2], first, first.stat()))  # read on in the copy
    first.rename(log.with_name("app.log.2"))
    log.write_bytes(b"second\n")
    shutil.copy2(log, log.with_name("app.log.1"))
    log.write_bytes(b"third\n")
    files = FollowedFiles([str(log)], known, lambda path: new_position("host", "t", "owner", path))
    found = [(each.path.name, each.read(1 << 20)) for each in files.open_all(follow=True)]
    files.close_all()
    assert [(name, None if lines is None else lines.data[-7:]) for name, lines in found] == [
        ("app.log.2", DATA[-7:]),
        ("app.log.1", b"second\n"),
        ("app.log", b"third\n"),
    ]


def follow(log: Path, known: Positions) -> FollowedFiles:
    return FollowedFiles([str(log)], known, lambda path: new_position("host", "t", "owner", path))


def rotate(log: Path, content: bytes | None) -> None:
    """Rename as logrotate does; None: before the next file is created."""
    for number in range(9, 0, -1):
        old = log.with_name(f"app.log.{number}")
        if old.exists():
            old.rename(log.with_name(f"app.log.{number + 1}"))
    log.rename(log.with_name("app.log.1"))
    if content is not None:
        log.write_bytes(content)
        now = log.stat().st_mtime_ns
        os.utime(log, ns=(now, now + 1_000_000_000 * int(content[4:])))  # each later than the last


def taken(file: LineFile, known: Positions) -> bytes:
    """Read a file to its end, and note that this was committed."""
    lines = file.read(1 << 20)
    if lines is None:
        return b""
    file.mark.advance(lines.data, len(lines.lines))
    file.position = file.committed()
    known.note(file.position)
    return lines.data


@pytest.mark.parametrize("creates", [True, False])
@pytest.mark.parametrize("moment", range(8))
def test_no_file_is_left_out_or_read_twice_by_a_rotation_meanwhile(
    log: Path, moment: int, creates: bool
) -> None:
    """Between a look at a name and the opening of a file it may have become another file's."""

    class Rotated(Positions):
        """The log is rotated at one of the look-ups of a file."""

        left = moment

        def find(self, path: Path, *, taken: Iterable[str] = ()) -> Any:
            self.left -= 1
            if self.left == -1:
                rotate(log, b"four3\n" if creates else None)
            return super().find(path, taken=taken)

    first = read_to(log, READ)
    known = Rotated({first.file_id: first})
    os.utime(log, ns=(0, 0))
    rotate(log, b"two 1\n")
    rotate(log, b"tree2\n")
    files = follow(log, known)
    found = [taken(each, known) for each in files.open_all(follow=True)]
    if known.left >= 0:
        known.left = -1
        rotate(log, b"four3\n")
    elif not creates:
        log.write_bytes(b"four3\n")
    found += [taken(each, known) for each in files.look()]
    files.close_all()
    assert [each for each in found if each] == [DATA[READ:], b"two 1\n", b"tree2\n", b"four3\n"]


def test_a_file_that_was_rotated_twice_between_two_looks_is_read(log: Path) -> None:
    known = positions(read_to(log, READ))
    os.utime(log, ns=(0, 0))
    files = follow(log, known)
    found = [taken(each, known) for each in files.open_all(follow=True)]
    rotate(log, b"two 1\n")
    rotate(log, b"tree2\n")
    found += [taken(each, known) for each in files.look()]
    files.close_all()
    assert found == [DATA[READ:], b"two 1\n", b"tree2\n"]


def test_a_rotation_while_rotated_files_are_read_leaves_none_out(log: Path) -> None:
    known = positions(read_to(log, READ))
    os.utime(log, ns=(0, 0))
    rotate(log, b"two 1\n")
    rotate(log, b"tree2\n")
    files = follow(log, known)
    found = []
    for each in files.open_all(follow=True):
        found.append(taken(each, known))
        if len(found) == 1:
            rotate(log, b"four3\n")
            rotate(log, b"five4\n")
    files.close_all()
    assert found == [DATA[READ:], b"two 1\n", b"tree2\n", b"four3\n", b"five4\n"]


def test_files_of_a_directory_may_be_renamed_while_they_are_opened(log: Path) -> None:
    class Renamed(Positions):
        done = False

        def find(self, path: Path, *, taken: Iterable[str] = ()) -> Any:
            if not self.done:
                self.done = True
                rotate(log, b"two 1\n")
            return super().find(path, taken=taken)

    known = Renamed()
    files = FollowedFiles(
        [str(log.parent)], known, lambda path: new_position("host", "t", "owner", path)
    )
    found = {taken(each, known) for each in files.open_all(follow=False)}
    files.close_all()
    assert found == {DATA, b"two 1\n"}


def test_the_compressed_copy_of_a_file_that_is_read_still_is_not_read_too(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millstream.cli.followed_files.SETTLED_S", 0.0)
    known = positions(read_to(log, READ))
    os.utime(log, ns=(0, 0))
    files = follow(log, known)
    found = [taken(each, known) for each in files.open_all(follow=True)]
    rotate(log, b"two 1\n")
    found += [taken(each, known) for each in files.look()]
    old = log.with_name("app.log.1")
    packed = log.with_name("app.log.2.gz")
    packed.write_bytes(gzip.compress(DATA))
    os.utime(packed, ns=(0, 0))
    old.unlink()
    rotate(log, b"tree2\n")
    found += [taken(each, known) for each in files.look()]
    files.close_all()
    assert found == [DATA[READ:], b"two 1\n", b"tree2\n"]


def opened(path: Path) -> LineFile:
    return LineFile(path, new_position("host", "t", "owner", path), open_source(path), Mark())


def test_an_unfinished_line_waits_for_its_end(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"one\ntw")
    file = opened(path)
    found = file.read(100)
    assert found == ([b"one"], b"one\n", b"")
    file.mark.advance(found.data, 1)
    assert file.read(100) is None
    with path.open("ab") as more:
        more.write(b"o\nthree")
    assert file.read(100) == ([b"two"], b"two\n", b"")
    file.mark.advance(b"two\n", 1)
    assert file.last_line() == ([b"three"], b"three", b"")
    file.mark.advance(b"three", 1)
    assert (file.mark.position, file.mark.line) == (13, 3)
    # It was sent without its line feed, which is not a line of its own.
    with path.open("ab") as more:
        more.write(b"\nfour\n")
    assert file.read(100) == ([b"four"], b"\nfour\n", b"\n")
    file.close()


def test_a_truncated_file_is_noticed_also_when_it_has_grown_again(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"one\ntwo\n")
    for content in (b"", b"x", b"other content that is longer\n"):
        path.write_bytes(b"one\ntwo\n")
        file = opened(path)
        found = file.read(100)
        assert found is not None
        file.mark.advance(found.data, 2)
        path.write_bytes(content)
        with pytest.raises(TruncatedError):
            file.read(100)
        file.close()


def test_files_of_a_directory_come_in_the_order_of_their_last_change(tmp_path: Path) -> None:
    for number, name in enumerate(["z.log", "a.log", "below/b.log", ".hidden", "c.gz"]):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"")
        os.utime(path, (number, number))
    found = [str(each.relative_to(tmp_path)) for each in files_of([str(tmp_path)])]
    assert found == ["z.log", "a.log", "below/b.log", "c.gz"]


@pytest.mark.parametrize("name", ["a.gz", "a.zst"])
def test_compressed_files(tmp_path: Path, name: str) -> None:
    zstandard = pytest.importorskip("zstandard")
    compress = gzip.compress if name.endswith("gz") else zstandard.ZstdCompressor().compress
    path = tmp_path / name
    path.write_bytes(compress(DATA) + compress(b"a second frame\n"))
    source = open_source(path)
    found = b""
    while data := source.read(1000):
        found += data
    source.close()
    assert found == DATA + b"a second frame\n"
    path.write_bytes(compress(os.urandom(5000))[:2000])
    source = open_source(path)
    with pytest.raises(CommandFailedError, match="damaged, or not complete"):
        list(iter(lambda: source.read(1000), b""))
    source.close()
