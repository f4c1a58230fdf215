"""What could not be written, and how much room there is: for errors of the system that name no
file.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import select
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, cast

from millstream import platform
from millstream.config.quantities import human_bytes
from millstream.model.errors import NO_ROOM

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_OF_WRITES: Final = NO_ROOM | {errno.EIO, errno.EROFS}
_STANDARD_OUTPUT: Final = "standard output"


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Have what fails in a block while ``path`` is written name it."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno in _OF_WRITES:
            error.filename = str(path)
        raise


class _Output(io.FileIO):
    """Standard output, whose errors name it."""

    def write(self, data: ReadableBuffer, /) -> int:
        """Write all of some bytes: where nothing is buffered, nobody looks how many were taken."""
        view = memoryview(data).cast("B")
        count = 0
        try:
            while count < len(view):
                taken = super().write(view[count:])
                count += taken or 0
                if not taken:  # whoever shares the pipe has made it one that does not block
                    select.select([], [self], [])
        except OSError as error:
            error.filename = _name(self.fileno())
            raise
        return count


def name_standard_output() -> None:
    """Have errors of standard output name it, where it is not a terminal."""
    out = sys.stdout
    if out is not sys.__stdout__ or not isinstance(out, io.TextIOWrapper) or out.isatty():
        return
    out.flush()
    raw = _Output(out.fileno(), "w", closefd=False)
    is_unbuffered = isinstance(out.buffer, io.FileIO)
    sys.stdout = io.TextIOWrapper(
        cast(BinaryIO, raw) if is_unbuffered else io.BufferedWriter(raw),
        encoding=out.encoding,
        errors=out.errors,
        line_buffering=out.line_buffering,
        write_through=is_unbuffered,
    )


def is_of_standard_output(error: OSError) -> bool:
    """Tell whether an error is one of standard output."""
    return isinstance(error.filename, str) and error.filename.startswith(_STANDARD_OUTPUT)


def _name(descriptor: int) -> str:
    """Return the name of standard output, with that of its file where the system tells it."""
    path = platform.descriptor_path(descriptor)
    return f"{_STANDARD_OUTPUT} ({path})" if path else _STANDARD_OUTPUT


def room(error: OSError) -> str:
    """Return how much is free where an error found no room, in brackets; "" for other errors, and
    where that cannot be told.
    """
    if error.errno not in NO_ROOM or not isinstance(error.filename, str):
        return ""
    place = error.filename
    if is_of_standard_output(error):
        place = place.removeprefix(_STANDARD_OUTPUT).removeprefix(" (").removesuffix(")")
        if not place:
            return ""
    try:
        if stat.S_ISCHR(os.stat(place).st_mode):
            return ""
    except OSError:
        pass  # it was not made
    return free_text(Path(place))


def free_text(place: Path) -> str:
    """Return how much is free on the disk of a file or directory, which need not be there."""
    import shutil

    for each in (place, *place.absolute().parents):
        with contextlib.suppress(OSError):
            found = shutil.disk_usage(each)
            return f" ({human_bytes(found.free)} of {human_bytes(found.total)} free)"
    return ""
