"""What a broker knows of entities, and who hears of it."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from millstream.model.entities import EntityKind
from millstream.runtime.metadata.entity_table import EntityTable

USER = EntityKind.USER


def test_watchers_hear_of_what_is_different() -> None:
    table = EntityTable()
    heard: list[list[str]] = []
    table.watch(USER, lambda keys: heard.append(sorted(keys)))
    table.change(USER, {"a": {"x": "1"}, "b": {"x": "1"}})
    table.change(USER, {"a": {"x": "1"}, "b": None, "none": None})
    table.change(EntityKind.CLIENT, {"c": {"x": "1"}})
    table.replace(USER, {"d": {"x": "1"}})
    table.replace(USER, {"d": {"x": "1"}})
    assert heard == [["a", "b"], ["b"], ["a", "d"]]
    assert dict(table.all(USER)) == {"d": {"x": "1"}}


def test_a_watcher_that_fails_is_no_other_watchers_fault() -> None:
    table = EntityTable()
    heard: list[str] = []

    def fail(_: Iterable[str]) -> None:
        raise RuntimeError("a reader")

    table.watch(USER, fail)
    table.watch(USER, heard.extend)
    table.change(USER, {"a": {"x": "1"}})
    assert heard == ["a"]


KEYS = st.sampled_from("abcdef")


@given(
    st.dictionaries(KEYS, st.just({"x": "1"})),
    st.none() | KEYS,
    st.none() | KEYS,
    st.sets(KEYS),
)
def test_a_range_keeps_what_is_named_and_what_is_outside(
    present: dict[str, dict[str, str]], after: str | None, through: str | None, named: set[str]
) -> None:
    table = EntityTable()
    table.change(USER, present)
    for _ in range(2):
        table.replace_range(USER, after=after, through=through, named=named)
        assert set(table.all(USER)) == {
            key
            for key in present
            if key in named
            or (after is not None and key <= after)
            or (through is not None and key > through)
        }
