"""Keeps Spark's Python workers from garbage-collecting all imported objects after each task."""

from __future__ import annotations

import gc
from functools import cache


@cache
def spare_garbage_collection() -> None:
    """Exclude the present objects of this process from garbage collection; only the first call does
    anything.

    Spark reuses its workers and collects garbage after every task. With pyarrow and pandas imported
    that visits 80,000 objects, which takes longer than reading ten thousand records. Call it at a
    task's end: by then all that tasks need is imported.
    """
    gc.freeze()
