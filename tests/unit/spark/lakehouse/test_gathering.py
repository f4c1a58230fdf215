"""Rows by their positions, of tables that Arrow does not take rows from at once."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from millstream.spark.lakehouse.gathering import take_rows


def test_more_than_two_gibibytes() -> None:
    """The chunks are one, 25 times: Arrow's own ``take`` fails on them."""
    words = pa.array(["x" * 1000] * 100_000)
    numbers = [pa.array(np.arange(100_000 * n, 100_000 * (n + 1))) for n in range(25)]
    rows = pa.table({"text": pa.chunked_array([words] * 25), "n": pa.chunked_array(numbers)})
    with pytest.raises(pa.ArrowInvalid, match="overflow"):
        rows.take(pa.array([1]))
    found = take_rows(rows, np.array([2_400_001, 5, 100_000]))
    assert found["n"].to_pylist() == [2_400_001, 5, 100_000]
    assert found["text"].to_pylist() == ["x" * 1000] * 3


@pytest.mark.parametrize("seed", range(20))
def test_as_arrow_takes_them(seed: int) -> None:
    rng = random.Random(seed)
    chunks = [
        [rng.choice([None, "y" * rng.randrange(30)]) for _ in range(rng.randrange(50))]
        for _ in range(rng.randrange(1, 8))
    ]
    lists = [[None if each is None else [each] for each in chunk] for chunk in chunks]
    rows = pa.table(
        {
            "text": pa.chunked_array(chunks, pa.string()),
            "list": pa.chunked_array(lists, pa.list_(pa.string())),
        }
    )
    count = rows.num_rows
    positions = np.array(rng.sample(range(count), rng.randrange(count + 1)), np.int64)
    expected = rows.take(pa.array(positions, pa.int64()))
    at_once = rng.randrange(1, 200)
    assert take_rows(rows, positions, at_once=at_once).equals(expected)
    unsigned = positions.astype(np.uint64)  # as pyarrow.compute.sort_indices gives them
    assert take_rows(rows, unsigned, at_once=at_once).equals(expected)
