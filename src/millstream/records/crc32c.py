"""CRC-32C, the checksum of a version 2 batch: a thin seam over the ``crc32c`` wheel.

The wheel reads any buffer without copying it and uses the processor's own instruction.
"""

from __future__ import annotations

from typing import TypeAlias

from crc32c import crc32c as checksum

Buffer: TypeAlias = bytes | bytearray | memoryview
"""Whatever holds bytes; nothing in this package copies one to look at it."""

__all__ = ["Buffer", "checksum"]
