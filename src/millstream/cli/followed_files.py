"""Which files are read, in which order, and what becomes of those that are rotated.

A file that is renamed is read to its end under its new name, as long as its writer may still have
it open; the file that takes its place is read beside it. One that is copied and truncated goes on
in the copy. Where the command was not running meanwhile, the file in which it stopped is looked for
beside the one that took its place, and those that were rotated later are read after it.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from millstream.cli.ingest_files import files_of, is_compressed, open_source, rotated_beside
from millstream.cli.ingest_positions import Mark, Position, Positions
from millstream.cli.line_file import FileIdentity, LineFile

SETTLED_S: Final = 5.0
"""A file that is being copied or compressed by a rotation has not changed for so long when it is
done."""


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
            if follow and not path.exists() and self._positions.of_path(path):
                yield from self.rotated_from(path, waits=True)
                continue
            for each in files_of([word]):
                if not path.is_dir():
                    yield from self.rotated_from(each, waits=True)
                elif (left_s := _unsettled_s(each)) > 0:
                    time.sleep(left_s)
                opened = self._opened(each)
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
            with suppress(FileNotFoundError):  # it is looked for again under its new name
                if str(path) in self._words:
                    yield from self.rotated_from(path)
                if _unsettled_s(path) <= 0 and (opened := self._opened(path)) is not None:
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

    def rotated_from(self, path: Path, *, waits: bool = False) -> Iterator[LineFile]:
        """Open the file in which reading of ``path`` stopped, under its new name, and those that
        were rotated after it. One that is being compressed is waited for if ``waits``.
        """
        if not self._positions.of_path(path):
            return
        found: list[tuple[Path, bool]] = []
        last_known: int | None = None
        for each in rotated_beside(path):
            if is_compressed(each) and (left_s := _unsettled_s(each)) > 0:
                if not waits:
                    continue  # it was read before it is compressed
                time.sleep(left_s)
            known = self._positions.find(each, taken=self._taken())
            if known is not None:
                known[1].close()
                last_known = len(found)
            found.append((each, known is not None))
        for number, (each, is_known) in enumerate(found):
            is_later = last_known is not None and number > last_known
            if is_known or is_later:
                opened = self._opened(each, origin=path)
                if opened is not None:
                    opened.note_rename()
                    yield opened

    def _taken(self) -> set[str]:
        return {each.position.file_id for each in self._open.values()}

    def _opened(self, path: Path, *, origin: Path | None = None) -> LineFile | None:
        """Open a file where it was left, unless it is open. ``origin`` is where it was rotated."""
        status = path.stat()
        if FileIdentity(status.st_dev, status.st_ino) in self._open:
            return None
        found = self._positions.find(path, taken=self._taken())
        if found is None:
            position = self._new(origin or path)
            file = LineFile(path, position, open_source(path), Mark())
        else:
            file = LineFile(path, *found)
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
