"""The rule of retention alone, against ten lines that restate it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from millstream.storage.retention import RetentionRules, SegmentAge, count_deletable


def restated(
    sizes: list[int], ages: list[int], start: int, committed: int, rules: RetentionRules
) -> int:
    """Ten records a segment; drop the oldest while any rule allows it."""
    ends = [10 * (n + 1) for n in range(len(sizes))]
    left = list(range(len(sizes)))

    def may_go(n: int) -> bool:
        return ends[n] <= committed and not (n == len(sizes) - 1 and sizes[n] == 0)

    while left and may_go(left[0]) and left[0] != len(sizes) - 1 and ends[left[0]] <= start:
        left.pop(0)
    size = sum(sizes[n] for n in left)
    while rules.deletes and rules.retention_bytes >= 0 and left and may_go(left[0]):
        if size - sizes[left[0]] < rules.retention_bytes:
            break
        size -= sizes[left.pop(0)]
    while rules.deletes and rules.retention_ms >= 0 and left and may_go(left[0]):
        if ages[left[0]] <= rules.retention_ms:
            break
        left.pop(0)
    return len(sizes) - len(left)


@given(
    segments=st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1, max_size=8),
    start=st.integers(0, 90),
    committed=st.integers(0, 90),
    retention_bytes=st.integers(-1, 150),
    retention_ms=st.integers(-1, 50),
    deletes=st.booleans(),
)
def test_against_the_rule(
    segments: list[tuple[int, int]],
    start: int,
    committed: int,
    retention_bytes: int,
    retention_ms: int,
    deletes: bool,
) -> None:
    sizes, ages = [s for s, _ in segments], [a for _, a in segments]
    rules = RetentionRules(
        retention_ms=retention_ms, retention_bytes=retention_bytes, deletes=deletes
    )
    found = count_deletable(
        [
            SegmentAge(10 * (n + 1), size, n == len(sizes) - 1, lambda n=n: 1000 - ages[n])
            for n, size in enumerate(sizes)
        ],
        rules,
        log_start_offset=start,
        committed_offset=committed,
        now_ms=1000,
    )
    assert found == restated(sizes, ages, start, committed, rules)
