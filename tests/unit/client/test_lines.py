"""The line encoder writes exactly what the record builder writes."""

from __future__ import annotations

import random

import pytest

from millstream.client.lines import LineEncoder
from millstream.records.batch import header_at
from millstream.records.builder import BatchBuilder, BatchOptions
from millstream.records.compression import Codec
from millstream.records.record import read_records


@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 8191, 8192, 8193])
def test_the_bytes_of_the_builder(count: int) -> None:
    rng = random.Random(count)
    lines = [rng.randbytes(rng.choice((0, 1, 40, 62, 63, 64, 200))) for _ in range(count)]
    builder = BatchBuilder()
    for line in lines:
        builder.append(1234, None, line)
    assert LineEncoder().encode(lines, 1234, BatchOptions()) == builder.build()


def test_tables_are_right_from_one_batch_to_the_next() -> None:
    encoder = LineEncoder()
    rng = random.Random(3)
    for codec in Codec:
        lines = [rng.randbytes(rng.randrange(20_000)) for _ in range(rng.randrange(1, 90))]
        batch = header_at(encoder.encode(lines, 5, BatchOptions(codec=codec, producer_id=9)))
        assert batch.is_valid
        assert [record.value for record in read_records(batch)] == lines
        assert (batch.codec, batch.producer_id) == (codec, 9)
