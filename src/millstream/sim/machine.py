"""A simulated machine: what outlives a broker's process, and what may happen to its disks."""

from __future__ import annotations

import errno
from dataclasses import dataclass, field
from random import Random
from typing import Final

from millstream.records.batch import iter_batches
from millstream.sim.disk import Contents, MemoryFileSystem, new_machine, set_boot_id

DIRECTORIES: Final = ("/logs", "/more-logs")
"""The log directories of a broker that has two; each is a disk of its own."""


@dataclass
class Machine:
    """One broker's machine."""

    number: int
    directories: tuple[str, ...]
    rate: float = 1.0
    """How fast its clock goes."""
    wall_offset_ms: int = 0
    boot: int = 1
    bad_directory: str | None = None
    """The log directory that refuses to work: flushes alone, or everything."""
    has_failed: bool = False
    """True once something has been refused."""
    files: MemoryFileSystem = field(init=False)

    def __post_init__(self) -> None:
        self.files = new_machine(self.number * 1_000)

    def power_loss(self, chance: Random) -> None:
        """Lose what was not flushed, or a part of it, and come up again."""
        self.files = self.files.crashed(chance)
        self.boot += 1
        set_boot_id(self.files, self.number * 1_000 + self.boot)

    def go_bad(self, directory: str, *, flushes_alone: bool) -> None:
        """Let a directory fail at the next flush, or at the next change of any kind."""
        self.bad_directory = directory

        def hook(step: str, path: str) -> None:
            concerned = path.startswith(directory + "/") or path == directory
            if concerned and (step.startswith("sync") or not flushes_alone):
                self.has_failed = True
                raise OSError(errno.EIO, "Input/output error", path)

        self.files.hook = hook

    def repair(self, chance: Random) -> None:
        """Put the disks right. What a failed flush should have kept may be gone, for the kernel
        drops the pages that it could not write.
        """
        if self.has_failed and self.bad_directory is not None:
            self.files.drop_pages(self.bad_directory, chance)
        self.files.hook = _no_hook
        self.bad_directory = None
        self.has_failed = False
        self.files.room = None
        self.files.has_been_full = False

    def replace_disk(self, directory: str) -> None:
        """Replace a directory's disk by an empty one."""
        self.files.remove_tree(directory)
        self.files.make_directory(directory)
        self.files.sync_all("/")

    def flip_bit(self, topic: str, chance: Random) -> bool:
        """Change a byte of a batch that is followed by a sound one, in the newest segment of some
        log of ``topic``: the part of a log that is looked at after a crash.
        """
        found = [
            (path, contents, batches)
            for path, contents in self._newest_segments(topic)
            if len(batches := _batch_positions(contents)) > 1
        ]
        if not found:
            return False
        _, contents, batches = chance.choice(found)
        position, size = chance.choice(batches[:-1])
        at = position + chance.randrange(17, size)  # what follows the header's length and epoch
        contents.data[at] ^= 1 << chance.randrange(8)
        contents.sync()
        return True

    def _newest_segments(self, topic: str) -> list[tuple[str, Contents]]:
        found: list[tuple[str, Contents]] = []
        for directory in self.directories:
            if not self.files.exists(directory):
                continue
            for each in self.files.scan(directory):
                name, _, index = each.name.rpartition("-")
                if not each.is_directory or name != topic or not index.isdigit():
                    continue
                path = f"{directory}/{each.name}"
                segments = [f.name for f in self.files.scan(path) if f.name.endswith(".log")]
                if segments:
                    newest = f"{path}/{max(segments)}"
                    found.append((newest, self.files.contents(newest)))
        return found


def _batch_positions(contents: Contents) -> list[tuple[int, int]]:
    """Return position and size of each batch."""
    positions: list[tuple[int, int]] = []
    position = 0
    for batch in iter_batches(memoryview(bytes(contents.data))):
        size = len(batch.buffer)
        positions.append((position, size))
        position += size
    return positions


def _no_hook(step: str, path: str) -> None:
    """Nothing is wrong with this disk."""
