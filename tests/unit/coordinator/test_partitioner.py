from __future__ import annotations

import pytest

from millstream.coordinator.group.partitioner import group_partition, java_hash


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("a", 97),
        ("my-group", -1_906_497_762),
        ("polygenelubricants", -(2**31)),
        ("\u00e9t\u00e9", 227_742),
        ("\U0001f600", 1_772_899),
    ],
)
def test_hash_is_java_string_hash_code(text: str, value: int) -> None:
    assert java_hash(text) == value


def test_smallest_int_goes_to_partition_0() -> None:
    assert group_partition("polygenelubricants", 50) == 0


def test_a_negative_hash_counts_by_its_absolute_value() -> None:
    assert java_hash("my-group") < 0
    assert group_partition("my-group", 50) == 1_906_497_762 % 50
