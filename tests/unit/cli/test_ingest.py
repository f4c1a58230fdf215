"""Lines to batches: nothing is lost, and a batch stays small enough for a broker."""

from __future__ import annotations

import io
import os
import random

import pytest

from millstream.cli.ingest_batches import LARGEST_BATCH_BYTES, read_batches
from millstream.records.builder import BatchOptions
from millstream.records.rows import encode_rows

MAX_MESSAGE_BYTES = 1_048_588


def batches_of(data: bytes, batch_bytes: int) -> list[list[bytes]]:
    return list(read_batches(io.BufferedReader(io.BytesIO(data)), batch_bytes))  # type: ignore[type-var]


@pytest.mark.parametrize("batch_bytes", [1, 2, 7, 64, LARGEST_BATCH_BYTES])
@pytest.mark.parametrize(
    "data",
    [b"", b"\n", b"a", b"a\n", b"a\nb", b"\n\nab\r\n\nc\n", b"x" * 500 + b"\ny\n", b"\x00\xff\n"],
)
def test_every_line_once_and_in_order(data: bytes, batch_bytes: int) -> None:
    lines = [line for batch in batches_of(data, batch_bytes) for line in batch]
    assert b"".join(line + b"\n" for line in lines) == (
        data if data.endswith(b"\n") or not data else data + b"\n"
    )


@pytest.mark.slow
@pytest.mark.parametrize("size", [0, 1, 5, 200, 5000, 300_000, 900_000])
def test_a_batch_fits_into_the_default_message_size(size: int) -> None:
    rng = random.Random(size)
    data = b"".join(
        os.urandom(rng.randrange(size + 1)).replace(b"\n", b" ") + b"\n"
        for _ in range(max(4_000_000 // (size + 8), 4))
    )
    batches = batches_of(data, LARGEST_BATCH_BYTES)
    assert b"".join(line + b"\n" for lines in batches for line in lines) == data
    for lines in batches:
        assert (
            len(encode_rows([0] * len(lines), None, lines, options=BatchOptions()))
            <= MAX_MESSAGE_BYTES
        )


def test_a_pipe_is_not_waited_for_until_it_is_full() -> None:
    read_end, write_end = os.pipe()
    with open(read_end, "rb") as source, open(write_end, "wb", buffering=0) as sink:
        batches = read_batches(source, LARGEST_BATCH_BYTES)
        sink.write(b"one\ntwo\nthr")
        assert next(batches) == [b"one", b"two"]
        sink.write(b"ee\n")
        assert next(batches) == [b"three"]


def test_a_long_line_gets_a_batch_of_its_own() -> None:
    data = b"x" * 900_000 + b"\n" + b"y\n" * 100_000
    batches = batches_of(data, LARGEST_BATCH_BYTES)
    assert batches[0] == [b"x" * 900_000]
    assert sum(map(len, batches)) == 100_001
