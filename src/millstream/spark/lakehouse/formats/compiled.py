"""Batches that the kernel reads, except for values that it leaves to Python.

What becomes of a value depends on that value alone: the kernel never rejects one and never words a
reason. Python reads what was left, which is all that is wrong, and the rows come back in order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.spark.lakehouse.formats.format import Decoded, Rejected, add_metadata


def with_left_ones(
    arrays: Sequence[pa.Array],
    left: npt.NDArray[np.int64],
    batch: pa.RecordBatch,
    columns: pa.Schema,
    plain: Callable[[pa.RecordBatch], Decoded],
) -> Decoded:
    """Return the rows of ``arrays``, which are all but those of ``left``, and these as ``plain``
    reads them.
    """
    if not len(left):
        return Decoded(add_metadata(arrays, columns, batch, None))
    found = plain(batch.take(pa.array(left)))
    rejected = [Rejected(int(left[each.row]), each.reason) for each in found.rejected]
    gone = [each.row for each in rejected]
    is_kept = np.ones(len(batch), np.bool_)
    is_kept[gone] = False
    if len(found.rows):
        is_left = np.zeros(len(batch), np.bool_)
        is_left[left] = True
        # The rows of the kernel stand first, then the others.
        is_left = is_left[is_kept]
        places = np.where(
            is_left, len(batch) - len(left) + np.cumsum(is_left) - 1, np.cumsum(~is_left) - 1
        )
        joined = (
            pa.concat_arrays([array, found.rows.column(index)])
            for index, array in enumerate(arrays)
        )
        arrays = [each.take(pa.array(places)) for each in joined]
    kept = pa.array(np.flatnonzero(is_kept)) if rejected else None
    return Decoded(add_metadata(arrays, columns, batch, kept), rejected, found.wider)
