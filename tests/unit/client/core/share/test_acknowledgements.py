"""How acknowledgements are written into requests."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from millstream.client.core.share.acknowledgements import AcknowledgedRange, ranges_of


def test_following_offsets_of_one_type_are_one_range_with_one_type() -> None:
    assert ranges_of(dict.fromkeys(range(5, 8), 1)) == [AcknowledgedRange(5, 7, (1,))]


def test_offsets_apart_are_ranges_apart() -> None:
    assert ranges_of({9: 2, 3: 1, 4: 1}) == [
        AcknowledgedRange(3, 4, (1,)),
        AcknowledgedRange(9, 9, (2,)),
    ]


def test_short_runs_share_a_range_and_long_ones_have_their_own() -> None:
    types = {0: 1, 1: 3} | dict.fromkeys(range(2, 14), 2) | {14: 1}
    assert ranges_of(types) == [
        AcknowledgedRange(0, 1, (1, 3)),
        AcknowledgedRange(2, 13, (2,)),
        AcknowledgedRange(14, 14, (1,)),
    ]


@given(st.dictionaries(st.integers(0, 80), st.integers(0, 4)))
def test_ranges_say_exactly_what_was_said(types: dict[int, int]) -> None:
    said: dict[int, int] = {}
    last = -1
    for each in ranges_of(types):
        assert last < each.first <= each.last
        last = each.last
        count = each.last - each.first + 1
        assert len(each.types) in (1, count)
        kinds = each.types * count if len(each.types) == 1 else each.types
        said |= dict(zip(range(each.first, each.last + 1), kinds, strict=True))
    assert said == types
