"""Where the C library of ``native/`` is, if it was built and is wanted.

The installation compiles it into the package ``millstream.records`` where it can. Without it, or
with ``MILLSTREAM_KERNEL=off`` in the environment, everything that it does is done in Python. Each
header of the library has a version of its own, which the module that calls it compares, so that an
older library is used for what it still knows.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

SWITCH: Final = "MILLSTREAM_KERNEL"
"""Environment variable; ``off`` leaves the library out."""

_SUFFIX: Final = {"darwin": ".dylib", "win32": ".dll"}.get(sys.platform, ".so")
LIBRARY: Final = Path(__file__).parents[1] / "records" / f"_kernel{_SUFFIX}"
"""Where ``native/build.py`` puts it."""


def find_library() -> tuple[Path | None, str]:
    """Return the library's path, or None and the reason why it is not used."""
    if os.environ.get(SWITCH, "").lower() in {"off", "0", "no", "false"}:
        return None, f"{SWITCH} is off"
    if not LIBRARY.exists():
        return None, f"{LIBRARY.name} was not built"
    return LIBRARY, ""
