"""The disk twin by the name under which tests know it."""

from __future__ import annotations

from millstream.sim.disk import Contents, Folder, MemoryFile, MemoryFileSystem, PowerLossError

__all__ = ["Contents", "Folder", "MemoryFile", "MemoryFileSystem", "PowerLossError"]
