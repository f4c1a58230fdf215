"""The search for a batch in C: what it gives is as good as what Python makes."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from millstream.records import find_kernel
from millstream.records.find_kernel import batch_finder
from millstream.records.kernel import library


class Found(NamedTuple):
    """A position, as the search makes it."""

    position: int
    size: int
    base_offset: int
    last_offset: int
    leader_epoch: int
    max_timestamp: int


def test_what_is_found_hashes_as_its_equal() -> None:
    find = batch_finder(library(), Found)
    if find is None:
        pytest.skip("needs the search in C: python native/build.py")
    found = find(find_kernel._HEADER, 0, 7, 1000, 0)
    assert found == Found(7, 61, 0, 0, 0, 0)
    assert {found: 1}[Found(7, 61, 0, 0, 0, 0)] == 1


def test_without_hashes_that_hold_python_searches() -> None:
    class Other(NamedTuple):
        position: int
        size: int
        base_offset: int
        last_offset: int
        leader_epoch: int
        max_timestamp: int

        def __hash__(self) -> int:
            return 0

    assert batch_finder(library(), Other) is None
