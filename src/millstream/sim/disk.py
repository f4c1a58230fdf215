"""The disk of a simulated machine: it can run full, fail, and lose what was not flushed.

Names and contents are kept twice: as they are, and as they are surely on disk. ``crashed`` returns
what a power loss may leave: of each file and of each directory what was flushed, and some prefix
of what happened to it since, the last write perhaps torn.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from millstream.storage.files import Buffer, DirectoryEntry, File, Lock, Space


class PowerLossError(BaseException):
    """Raised by a hook where the machine stops; no code of ours may catch it."""


@dataclass(eq=False)
class Contents:
    """A file's bytes now, on disk, and the steps between.

    The zeros at a file's end are counted and not kept: indexes are made ten megabytes long before
    anything is in them.
    """

    data: bytearray = field(default_factory=bytearray)
    size: int = 0
    """Bytes in the file; what ``data`` lacks are zeros."""
    synced: tuple[bytes, int] = (b"", 0)
    steps: list[tuple[int, bytes | None]] = field(default_factory=list)
    """(position, bytes written) or (size, None) for a truncation."""
    reserved_end: int = 0
    """Up to where blocks are reserved, if that is beyond the end."""

    def apply(self, position: int, data: bytes | None) -> None:
        """Write or cut."""
        if data is None:
            del self.data[position:]
            self.size = self.reserved_end = position
            return
        if position > len(self.data):
            self.data.extend(bytes(position - len(self.data)))
        self.data[position : position + len(data)] = data
        self.size = max(self.size, position + len(data))

    def read(self, position: int, size: int) -> bytes:
        """Return bytes, zeros where only zeros are."""
        found = bytes(self.data[position : position + size])
        return found.ljust(max(min(size, self.size - position), 0), b"\0")

    def change(self, position: int, data: bytes | None) -> None:
        """Write or cut, and remember it until the next flush."""
        self.apply(position, data)
        self.steps.append((position, data))

    def sync(self) -> None:
        """Bring everything to disk."""
        self.synced = (bytes(self.data), self.size)
        self.steps.clear()

    def crashed(self, chance: random.Random) -> Contents:
        """Return what a power loss may leave."""
        data, size = self.synced
        left = Contents(bytearray(data), size)
        for number, (position, written) in enumerate(
            self.steps[: chance.randint(0, len(self.steps))]
        ):
            torn = written is not None and chance.random() < 0.3
            part = written[: chance.randint(0, len(written))] if torn and written else written
            left.apply(position, part)
            if torn and number >= 0:
                break
        left.sync()
        return left


@dataclass(eq=False)
class Folder:
    """A directory's names now, on disk, and the steps between."""

    names: dict[str, Node] = field(default_factory=dict)
    synced: dict[str, Node] = field(default_factory=dict)
    steps: list[dict[str, Node | None]] = field(default_factory=list)
    """What each step put under which names; None where it took one away. A rename is one step."""

    def change(self, step: dict[str, Node | None]) -> None:
        """Change names, and remember it until the next flush."""
        _apply(self.names, step)
        self.steps.append(step)

    def sync(self) -> None:
        """Bring all names to disk."""
        self.synced = dict(self.names)
        self.steps.clear()

    def crashed(self, chance: random.Random, seen: dict[Node, Node]) -> Folder:
        """Return what a power loss may leave; ``seen`` holds files that were met."""
        names = dict(self.synced)
        for step in self.steps[: chance.randint(0, len(self.steps))]:
            _apply(names, step)
        left = Folder()
        for name, node in names.items():
            if node not in seen:
                seen[node] = (
                    node.crashed(chance, seen) if isinstance(node, Folder) else node.crashed(chance)
                )
            left.names[name] = seen[node]
        left.sync()
        return left


Node: TypeAlias = Contents | Folder


def _apply(names: dict[str, Node], step: dict[str, Node | None]) -> None:
    for name, node in step.items():
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


class MemoryFile:
    """An open file of a :class:`MemoryFileSystem`."""

    def __init__(self, owner: MemoryFileSystem, path: str, contents: Contents) -> None:
        self._owner = owner
        self._path = path
        self._contents = contents

    def fileno(self) -> int:
        """There is none."""
        raise OSError(errno.EBADF, "a file in memory has no descriptor")

    def read_at(self, position: int, size: int) -> bytes:
        """Return bytes."""
        return self._contents.read(position, size)

    def is_cached(self, position: int, size: int) -> bool:
        """All of it is in memory."""
        return True

    def read_ahead(self, position: int, size: int) -> None:
        """All of it is in memory."""

    def write_at(self, position: int, data: bytes | bytearray | memoryview) -> None:
        """Write; on OSError a part of it is written."""
        self._owner.step("write", self._path)
        room = self._owner.room
        if room is not None:
            if room < len(data):
                self._contents.change(position, bytes(data[:room]))
                self._owner.room = 0
                self._owner.has_been_full = True
                raise OSError(errno.ENOSPC, "No space left on device", self._path)
            self._owner.room = room - len(data)
        self._contents.change(position, bytes(data))

    def size(self) -> int:
        """Return the bytes in the file."""
        return self._contents.size

    def truncate(self, size: int) -> None:
        """Cut or extend."""
        self._owner.step("truncate", self._path)
        if size != self._contents.size:
            self._contents.change(size, None)

    def reserve(self, position: int, size: int) -> None:
        """Note it: nothing that a crash may leave is changed by it."""
        self._contents.reserved_end = max(self._contents.size, position + size)

    def give_back_reserved(self) -> None:
        """Forget what was reserved."""
        self._owner.step("give back", self._path)
        self._contents.reserved_end = self._contents.size

    def sync(self) -> None:
        """Bring the bytes to disk."""
        self._owner.step("sync", self._path)
        self._contents.sync()


class _NoLock:
    def release(self) -> None:
        """Nobody else sees this file system."""


class MemoryFileSystem:
    """A :class:`millstream.storage.files.FileSystem`.

    ``hook(step, path)`` runs before every write, truncation, flush and change of a name; it may
    raise. ``room`` is how many bytes may still be written, None for any number.
    """

    def __init__(self, root: Folder | None = None) -> None:
        self._root = root or Folder()
        self.hook: Callable[[str, str], None] = lambda step, path: None
        self.room: int | None = None
        self.has_been_full = False
        self.steps = 0

    def step(self, name: str, path: str) -> None:
        """Count a step and let the hook see it."""
        self.steps += 1
        self.hook(name, path)

    def crashed(self, chance: random.Random) -> MemoryFileSystem:
        """Return a file system as a power loss now may leave it."""
        return MemoryFileSystem(self._root.crashed(chance, {}))

    def drop_pages(self, directory: str, chance: random.Random) -> None:
        """Lose of each file in a directory what a flush that failed may have lost; names stay as
        they are.
        """
        _drop_pages(self._find(directory), chance)

    def contents(self, path: str) -> Contents:
        """Return what is in a file, to look at or to spoil."""
        node = self._find(path)
        assert isinstance(node, Contents)
        return node

    def _find(self, path: str) -> Node:
        node: Node = self._root
        for name in filter(None, path.split("/")):
            if not isinstance(node, Folder) or name not in node.names:
                raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
            node = node.names[name]
        return node

    def _folder(self, path: str) -> tuple[Folder, str]:
        parent, _, name = path.rstrip("/").rpartition("/")
        folder = self._find(parent) if parent else self._root
        if not isinstance(folder, Folder):
            raise NotADirectoryError(errno.ENOTDIR, "Not a directory", parent)
        return folder, name

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> File:
        """Open a file."""
        folder, name = self._folder(path)
        node = folder.names.get(name)
        if node is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
            self.step("create", path)
            node = Contents()
            folder.change({name: node})
        assert isinstance(node, Contents)
        return MemoryFile(self, path, node)

    def map(self, path: str) -> Buffer:
        """Return the bytes."""
        node = self._find(path)
        assert isinstance(node, Contents)
        return node.read(0, node.size)

    def scan(self, directory: str) -> list[DirectoryEntry]:
        """Return what is in a directory."""
        folder = self._find(directory)
        assert isinstance(folder, Folder)
        return [
            DirectoryEntry(name, True, 0, 0)
            if isinstance(node, Folder)
            else DirectoryEntry(name, False, node.size, 0)
            for name, node in folder.names.items()
        ]

    def exists(self, path: str) -> bool:
        """Tell whether it is there."""
        try:
            self._find(path)
        except FileNotFoundError:
            return False
        return True

    def make_directory(self, path: str) -> None:
        """Make a directory and those above it."""
        made = ""
        for name in path.strip("/").split("/"):
            folder, _ = self._folder(f"{made}/{name}")
            made = f"{made}/{name}"
            if name not in folder.names:
                self.step("mkdir", path)
                folder.change({name: Folder()})

    def rename(self, old_path: str, new_path: str) -> None:
        """Rename, in one step within a directory."""
        node = self._find(old_path)
        self.step("rename", old_path)
        old_folder, old_name = self._folder(old_path)
        new_folder, new_name = self._folder(new_path)
        if old_folder is new_folder:
            old_folder.change({old_name: None, new_name: node})
        else:
            new_folder.change({new_name: node})
            old_folder.change({old_name: None})

    def set_modified(self, path: str, modified_ms: int) -> None:
        """Files here have no times."""

    def remove(self, path: str) -> None:
        """Remove a file or directory."""
        if self.exists(path):
            self.step("remove", path)
            folder, name = self._folder(path)
            folder.change({name: None})

    def remove_tree(self, path: str) -> None:
        """Remove a directory and all in it."""
        self.remove(path)

    def sync_directory(self, path: str) -> None:
        """Bring names to disk."""
        if self.exists(path):
            self.step("sync_directory", path)
            folder = self._find(path)
            assert isinstance(folder, Folder)
            folder.sync()

    def sync_files(self, files: Sequence[File]) -> None:
        """Flush several files."""
        for file in files:
            file.sync()

    def sync_all(self, directory: str) -> None:
        """Bring everything to disk."""
        self.step("sync_all", directory)
        _sync_tree(self._root)

    def lock(self, path: str) -> Lock:
        """Nobody else sees this file system."""
        return _NoLock()

    def space(self, directory: str) -> Space:
        """Return how much fits."""
        return Space(1 << 40, 1 << 40 if self.room is None else self.room)


def _drop_pages(node: Node, chance: random.Random) -> None:
    if isinstance(node, Contents):
        left = node.crashed(chance)
        node.data, node.synced, node.steps = left.data, left.synced, []
    else:
        for child in node.names.values():
            _drop_pages(child, chance)


def _sync_tree(node: Node) -> None:
    node.sync()
    if isinstance(node, Folder):
        for child in node.names.values():
            _sync_tree(child)


BOOT_ID = "/proc/sys/kernel/random/boot_id"


def new_machine(boot: int) -> MemoryFileSystem:
    """Return the empty disk of a machine that runs for the first time."""
    files = MemoryFileSystem()
    set_boot_id(files, boot)
    return files


def set_boot_id(files: MemoryFileSystem, boot: int) -> None:
    """Let the machine have come up once more: its page cache is empty."""
    files.make_directory(BOOT_ID.rpartition("/")[0])
    file = files.open(BOOT_ID, create=True)
    file.truncate(0)
    file.write_at(0, b"boot-%d" % boot)
    files.sync_all("/")
