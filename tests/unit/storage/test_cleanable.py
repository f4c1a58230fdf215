"""Which segments are cleaned together, and when a log is worth cleaning. Pure."""

from __future__ import annotations

import pytest

from millstream.storage.cleanable import (
    CleanableRange,
    SourceSegment,
    group_segments,
    valid_checkpoint,
)

FAR = 2**31


def segments(*sizes: int, step: int = 10, index: int = 8, time: int = 12) -> list[SourceSegment]:
    return [
        SourceSegment(
            base_offset=number * step,
            end_offset=(number + 1) * step,
            size=size,
            index_bytes=index,
            time_index_bytes=time,
        )
        for number, size in enumerate(sizes)
    ]


def grouped(
    made: list[SourceSegment], *, max_bytes: int = 100, max_index_bytes: int = 1000
) -> list[list[int]]:
    groups = group_segments(made, max_bytes=max_bytes, max_index_bytes=max_index_bytes)
    return [[segment.size for segment in group] for group in groups]


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([], []),
        ([100], [[100]]),
        ([300], [[300]]),
        ([50, 50, 1], [[50, 50], [1]]),
        ([300, 1, 1], [[300], [1, 1]]),
        ([0, 0, 0, 100, 0], [[0, 0, 0, 100, 0]]),
    ],
)
def test_groups_by_size(sizes: list[int], expected: list[list[int]]) -> None:
    assert grouped(segments(*sizes)) == expected


def test_groups_by_the_size_of_each_index() -> None:
    assert grouped(segments(1, 1, 1, index=20, time=1), max_index_bytes=40) == [[1, 1], [1]]
    assert grouped(segments(1, 1, 1, index=1, time=20), max_index_bytes=40) == [[1, 1], [1]]


def test_groups_by_the_span_of_offsets_but_for_empty_segments() -> None:
    half = FAR // 2
    assert grouped(segments(1, 1, 1, step=half)) == [[1, 1], [1]]
    assert grouped(segments(1, 0, 0, step=half)) == [[1, 0, 0]]
    assert grouped(segments(1, 1, 1, step=half + 1)) == [[1], [1], [1]]


@pytest.mark.parametrize(
    ("clean", "dirty", "overdue", "ratio", "expected"),
    [
        (0, 0, 0, 0.0, False),
        (0, 1, 0, 0.99, True),
        (0, 1, 0, 1.0, False),
        (50, 50, 0, 0.5, False),
        (50, 51, 0, 0.5, True),
        (99, 1, 5, 0.5, True),
        (99, 0, 5, 0.5, False),
    ],
)
def test_worth_it(clean: int, dirty: int, overdue: int, ratio: float, expected: bool) -> None:
    found = CleanableRange(
        first_dirty_offset=0,
        first_uncleanable_offset=0,
        clean_bytes=clean,
        dirty_bytes=dirty,
        overdue_ms=overdue,
    )
    assert found.is_worth_it(ratio) is expected


def test_checkpoints_outside_of_the_log() -> None:
    found = [
        valid_checkpoint(offset, log_start_offset=5, log_end_offset=9)
        for offset in (None, 4, 5, 9, 10)
    ]
    assert found == [5, 5, 5, 9, 5]
