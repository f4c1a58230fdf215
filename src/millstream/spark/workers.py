"""What Python workers of Spark are spared: looking for garbage among everything imported."""

from __future__ import annotations

import gc
from functools import cache


@cache
def spare_garbage_collection() -> None:
    """Leave the objects that this process has now out of garbage collection; once is enough.

    Spark reuses its workers and collects garbage after every task. With pyarrow and pandas imported
    that visits 80,000 objects, which takes longer than reading ten thousand records. Call it at a
    task's end: by then all that tasks need is imported.
    """
    gc.freeze()
