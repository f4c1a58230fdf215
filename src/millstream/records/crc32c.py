"""CRC-32C, the checksum of a version 2 batch: a thin wrapper of the ``crc32c`` package.

The package reads any buffer without copying it and uses the processor's CRC instruction. It imports
``importlib.metadata`` for its version, a tenth of a broker's start-up time, so only its extension
module is loaded if it can be found.
"""

from __future__ import annotations

from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import Protocol, TypeAlias, cast

Buffer: TypeAlias = bytes | bytearray | memoryview
"""Any bytes-like object; nothing in this package copies one to read it."""


class Checksum(Protocol):
    """A CRC-32C function."""

    def __call__(self, data: Buffer, value: int = 0, /) -> int:
        """Return the checksum of ``data``, continuing from ``value``."""


def _load() -> Checksum:
    package = find_spec("crc32c")
    places = package.submodule_search_locations if package is not None else None
    extension = PathFinder.find_spec("_crc32c", places)
    if extension is None or extension.loader is None:
        from crc32c import crc32c

        return crc32c
    module = module_from_spec(extension)
    extension.loader.exec_module(module)
    return cast(Checksum, module.crc32c)


checksum: Checksum = _load()
"""The implementation in use."""

__all__ = ["Buffer", "checksum"]
