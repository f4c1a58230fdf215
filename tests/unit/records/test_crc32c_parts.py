"""The checksum of a part from those of two beginnings."""

from __future__ import annotations

from random import Random

from millstream.records.crc32c import checksum
from millstream.records.crc32c_parts import of_rest


def test_any_part_has_the_checksum_of_its_bytes() -> None:
    random = Random(3)
    data = random.randbytes(5_000)
    for _ in range(300):
        start = random.randint(0, len(data))
        end = random.randint(start, len(data))
        whole, beginning = checksum(data[:end]), checksum(data[:start])
        assert of_rest(whole, beginning, end - start) == checksum(data[start:end])


def test_a_long_part_is_as_good() -> None:
    beginning, zeros = b"beginning", bytes(1 << 26)
    whole = checksum(zeros, checksum(beginning))
    assert of_rest(whole, checksum(beginning), len(zeros)) == checksum(zeros)
