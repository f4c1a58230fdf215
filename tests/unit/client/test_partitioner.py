"""Partition choice equals that of Java producers."""

from __future__ import annotations

from millstream.client.partitioner import murmur2, partition_for_key


def test_values_that_java_computes() -> None:
    # Kafka: UtilsTest.testMurmur2
    assert murmur2(b"21") == -973932308 & 0xFFFFFFFF
    assert murmur2(b"foobar") == -790332482 & 0xFFFFFFFF
    assert murmur2(b"a-little-bit-long-string") == -985981536 & 0xFFFFFFFF
    assert murmur2(b"a-little-bit-longer-string") == -1486304829 & 0xFFFFFFFF
    assert murmur2(b"abc") == 479470107


def test_the_partition_is_in_range() -> None:
    assert {partition_for_key(str(number).encode(), 7) for number in range(200)} == set(range(7))
