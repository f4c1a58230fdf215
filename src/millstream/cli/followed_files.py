"""Which files are read, in which order, and what becomes of those that are rotated.

A file that is renamed is read to its end under its new name, as long as its writer may still have
it open; the file that takes its place is read beside it. One that is copied and truncated goes on
in the copy. Where the command was not running meanwhile, the file in which it stopped is looked for
beside the one that took its place, and those that were rotated later are read after it.
"""

from __future__ import annotations

import errno
import os
import time
import uuid
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from millstream.cli.ingest_files import files_of, is_compressed, open_source, rotated_beside
from millstream.cli.ingest_positions import Mark, Position, Positions
from millstream.cli.line_file import FileIdentity, LineFile, identity_of

SETTLED_S: Final = 5.0
"""A file that is being copied or compressed by a rotation has not changed for so long when it is
done."""


class _Place(NamedTuple):
    """A file, and the name that it had when it was looked for."""

    identity: FileIdentity
    path: Path


class FollowedFiles:
    """The files that the words of a command stand for, opened where they were left."""

    def __init__(
        self, words: Sequence[str], positions: Positions, new: Callable[[Path], Position]
    ) -> None:
        self._words = words
        self._positions = positions
        self._new = new
        self._open: dict[FileIdentity, LineFile] = {}
        self._asleep: dict[FileIdentity, int] = {}
        """Files that are not open because nothing is added to them, and their sizes."""

    def __iter__(self) -> Iterator[LineFile]:
        return iter(list(self._open.values()))

    def open_all(self, *, follow: bool) -> Iterator[LineFile]:
        """Open what is there, one after the other: rotated files first."""
        for word in self._words:
            path = Path(word)
            if path.is_dir():
                yield from self._in_directory(word)
                continue
            if not (follow and self._positions.of_path(path)):
                path.stat()  # its error names the file
            yield from self.in_order(path, waits=True)

    def _in_directory(self, word: str) -> Iterator[LineFile]:
        done: set[FileIdentity] = set()
        moved = True
        while moved:
            moved = False
            for path in files_of([word]):
                try:
                    identity = identity_of(path)
                    if identity in done:
                        continue
                    if (left_s := _unsettled_s(path)) > 0:
                        time.sleep(left_s)
                    opened = self._opened(_Place(identity, path))
                except FileNotFoundError:  # it has another name now
                    moved = True
                    continue
                done.add(identity)
                if opened is not None:
                    yield opened

    def look(self) -> Iterator[LineFile]:
        """Open what has come since, and note what was renamed."""
        present = dict(self._present())
        for identity, file in list(self._open.items()):
            found = present.get(identity)
            if found is None or found[0] != file.path:
                file.note_rename()
                file.path = file.path if found is None else found[0]
        for identity, (path, size) in present.items():
            if identity in self._open or self._asleep.get(identity) == size:
                continue
            if str(path) in self._words:
                yield from self.in_order(path)
                continue
            with suppress(FileNotFoundError):  # it is looked for again under its new name
                if _unsettled_s(path) <= 0:
                    opened = self._opened(_Place(identity, path))
                    if opened is not None:
                        yield opened

    def _present(self) -> Iterator[tuple[FileIdentity, tuple[Path, int]]]:
        for word in self._words:
            try:
                paths = files_of([word])
            except FileNotFoundError:  # between a rename and the creation of the next file
                continue
            for path in paths:
                with suppress(FileNotFoundError):
                    status = path.stat()
                    yield FileIdentity(status.st_dev, status.st_ino), (path, status.st_size)

    def in_order(self, path: Path, *, waits: bool = False) -> Iterator[LineFile]:
        """Open the file in which reading of ``path`` stopped, under its new name, those that were
        rotated after it, and the one that is there now. One that is being compressed is waited for
        if ``waits``.

        A file is known by its device and inode all the while: its name may become another's between
        two steps, for whoever reads a file that was opened may take long. What was renamed
        meanwhile is looked for anew.
        """
        done: set[FileIdentity] = set()
        while True:
            try:
                plan = self._plan(path, done, waits=waits)
                if not plan:
                    return
                for each in plan:
                    opened = self._opened(each, origin=path)
                    done.add(each.identity)
                    if opened is not None:
                        if each.path != path:
                            opened.note_rename()
                        yield opened
            except FileNotFoundError:
                continue

    def _plan(self, path: Path, done: Set[FileIdentity], *, waits: bool) -> list[_Place]:
        """Return what is to be read for ``path`` besides what is done, the oldest first."""
        places = _listed(path)
        rotated = [each for each in places if each.path != path]
        found: list[_Place] = []
        first: int | None = None  # where what is to be read begins
        for each in rotated if self._positions.of_path(path) else ():
            if each.identity in done:
                first = len(found) if first is None else first
                continue
            if is_compressed(each.path) and (left_s := _unsettled_s(each.path)) > 0:
                if not waits:
                    continue  # it was read before it is compressed
                time.sleep(left_s)
            known, is_copy = self._known(each)
            if first is None and known:
                first = len(found)
            if not is_copy:
                found.append(each)
        now = [each for each in places[len(rotated) :] if each.identity not in done]
        if not waits and _unsettled_s(path) > 0:
            now = []
        return [*(found[first:] if first is not None else ()), *now]

    def _known(self, place: _Place) -> tuple[bool, bool]:
        """Tell whether a file was ingested before, as far as it was; and whether it is the copy of
        one that is being read.
        """
        if place.identity in self._open:
            return True, False
        found = self._positions.find(place.path)
        if found is None:
            return False, False
        found[1].close()
        return True, found[0].file_id in self._taken()

    def _taken(self) -> set[str]:
        return {each.position.file_id for each in self._open.values()}

    def _opened(self, place: _Place, *, origin: Path | None = None) -> LineFile | None:
        """Open a file where it was left, unless it is open. ``origin`` is where it was rotated.

        FileNotFoundError if it is not at its place any more.
        """
        if place.identity in self._open:
            return None
        found = self._positions.find(place.path, taken=self._taken())
        if found is None:
            position = self._new(origin or place.path)
            file = LineFile(place.path, position, open_source(place.path), Mark())
        else:
            file = LineFile(place.path, *found)
        if file.identity != place.identity:
            file.close()
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(place.path))
        self._open[file.identity] = file
        self._asleep.pop(file.identity, None)
        return file

    def close(self, file: LineFile) -> None:
        """Close a file that is at its end; one that grows is opened again."""
        file.close()
        self._open.pop(file.identity, None)
        self._asleep[file.identity] = file.size

    def forget(self, file: LineFile) -> None:
        """Close a file that was truncated: it is another one now."""
        file.close()
        self._open.pop(file.identity, None)

    def close_all(self) -> None:
        """Close what is open."""
        for each in list(self._open.values()):
            each.close()
        self._open.clear()


def new_position(name: str, topic: str, owner: str, path: Path) -> Position:
    """Return the position of a file of which nothing was ingested."""
    return Position(
        file_id=uuid.uuid4().hex,
        name=name,
        topic=topic,
        owner=owner,
        origin=str(path.absolute()),
        path=str(path.absolute()),
        device=0,
        inode=0,
        position=0,
        line=0,
        head="",
        tail="",
    )


def _listed(path: Path) -> list[_Place]:
    """Return the files that were rotated from ``path``, those last modified first, and that at
    ``path``: all names of one moment, in which nothing was renamed.
    """
    before: list[_Place] | None = None
    while True:
        now = []
        for each in (*rotated_beside(path), path):
            with suppress(FileNotFoundError):
                now.append(_Place(identity_of(each), each))
        if now == before:
            return now
        before = now


def _unsettled_s(path: Path) -> float:
    """Return for how long to leave a file alone: a rotation may be writing it."""
    if not is_compressed(path) and not _has_a_rotated_name(path):
        return 0
    return SETTLED_S - (time.time() - path.stat().st_ctime)


def _has_a_rotated_name(path: Path) -> bool:
    """Tell whether another file beside it has the name that this one had."""
    name = path.name
    while True:
        name, dot, _ = name.rpartition(".")
        if not dot:
            return False
        base = path.with_name(name)
        if base.exists() and path in rotated_beside(base):
            return True
