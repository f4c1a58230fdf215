"""What the filters of DeleteAcls delete, and how much work that is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.controller.test_acl_changes import ACLS, FILTERS, READ, entities, is_matched

from millstream.controller import acl_deletion
from millstream.controller.acl_deletion import WORK_PER_STEP, Deletion, deletion_in_steps
from millstream.model.acl import Acl, AclFilter, AclResource, PatternType
from millstream.model.entities import EntityValue
from millstream.model.entity_keys import acl_value, read_acls
from millstream.model.errors import KafkaError

ONE = AclFilter(resource=AclResource.TOPIC, name="t1", pattern=PatternType.LITERAL)


def run(
    present: Mapping[str, EntityValue], filters: Sequence[AclFilter]
) -> tuple[Deletion, list[int]]:
    """Return what comes of it, and how much work was done in each step."""
    steps = deletion_in_steps(present, filters)
    work: list[int] = []
    while True:
        try:
            work.append(next(steps))
        except StopIteration as end:
            return end.value, work


@given(st.lists(ACLS), st.lists(FILTERS, max_size=5))
def test_what_filters_match_is_deleted(acls: list[Acl], filters: list[AclFilter]) -> None:
    present = entities(acls)
    deletion, _ = run(present, filters)
    for wanted, found in zip(filters, deletion.found, strict=True):
        assert isinstance(found, list)
        assert len(found) == len(set(found))
        assert set(found) == {each for each in acls if is_matched(wanted, each)}
    gone = {each for each in acls if any(is_matched(one, each) for one in filters)}
    left = {**present, **deletion.changes}
    rest = {acl for key, value in left.items() if value for acl in read_acls(key, value)}
    assert rest == set(acls) - gone


def test_a_filter_that_matches_too_many_deletes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acl_deletion, "MAX_CHANGES", 2)
    present = entities([replace(READ, name=f"t{i}") for i in range(3)])
    deletion, _ = run(present, [AclFilter(), ONE])
    assert isinstance(deletion.found[0], KafkaError)
    assert deletion.found[1] == [replace(READ, name="t1")]
    assert deletion.changes == {"Topic/literal/t1": None}


def test_filters_that_match_too_many_together_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(acl_deletion, "MAX_FOUND", 5)
    present = entities([replace(READ, name=f"t{i}") for i in range(3)])
    with pytest.raises(KafkaError, match=r"POLICY_VIOLATION.*more than 5 acls"):
        run(present, [AclFilter(), AclFilter(principal="User:ann")])


RULES = 20_000
FILTER_COUNT = 3_000


@pytest.fixture(scope="module")
def many() -> dict[str, EntityValue]:
    value = acl_value([READ])
    return {f"Topic/literal/t{number}": value for number in range(RULES)}


@pytest.mark.slow
def test_thousands_of_filters_look_each_rule_up_once(many: dict[str, EntityValue]) -> None:
    """One by one they would look at sixty million rules."""
    by_user = [AclFilter(principal=f"User:u{number}") for number in range(FILTER_COUNT)]
    by_host = [AclFilter(host=f"10.0.0.{number}") for number in range(FILTER_COUNT)]
    deletion, work = run(many, [*by_user, *by_host])
    assert not deletion.changes
    # A key, and two shapes: by the user and by the host.
    assert sum(work) <= 3 * RULES + 2 * len(by_user) + 2 * len(by_host)
    assert len(work) >= 2 * RULES // WORK_PER_STEP
    assert max(work) <= WORK_PER_STEP + 10


@pytest.mark.slow
def test_filters_that_name_their_resource_look_at_nothing_else(
    many: dict[str, EntityValue],
) -> None:
    named = [replace(ONE, name=f"t{number}") for number in range(FILTER_COUNT)]
    deletion, work = run(many, named)
    assert len(deletion.changes) == FILTER_COUNT
    assert sum(work) <= 6 * FILTER_COUNT
    matching = [replace(each, pattern=PatternType.MATCH) for each in named]
    deletion, work = run({**many, "Topic/prefixed/t1": acl_value([READ])}, matching)
    assert len(deletion.changes) == FILTER_COUNT + 1
    assert sum(work) <= RULES + 1 + 12 * FILTER_COUNT


def test_many_filters_on_one_resource_with_many_rules() -> None:
    acls = [replace(READ, name="t1", principal=f"User:u{number}") for number in range(2_000)]
    filters = [replace(ONE, principal=f"User:u{number}") for number in range(2_000)]
    deletion, work = run(entities(acls), filters)
    assert deletion.changes == {"Topic/literal/t1": None}
    assert sum(work) <= 12_000
