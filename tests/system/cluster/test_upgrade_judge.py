"""What the story of an upgrade takes for two owners of a partition."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.system.cluster.upgrade_story import Commit, double_owners


@dataclass
class Committing:
    """What is judged of a member."""

    name: str
    commits_of: dict[int, list[Commit]]
    begins_of: dict[int, list[float]] = field(default_factory=lambda: {0: [], 1: []})


def judged(*members: Committing) -> list[str]:
    return double_owners(members)  # type: ignore[arg-type]


def test_a_commit_between_two_of_another_member() -> None:
    one = Committing("one", {0: [Commit(1, 2), Commit(5, 6)]})
    other = Committing("other", {0: [Commit(3, 4)]})
    assert judged(one, other) == [f"one and other had 0 at {Commit(3, 4)}"]


def test_a_partition_that_goes_and_comes_back_has_one_owner() -> None:
    one = Committing("one", {0: [Commit(1, 2), Commit(5, 6)]}, {0: [0.5, 4.5]})
    other = Committing("other", {0: [Commit(3, 4)]}, {0: [2.5]})
    assert judged(one, other) == []


def test_commits_that_may_have_been_taken_in_either_order() -> None:
    one = Committing("one", {0: [Commit(1, 2), Commit(5, 6)], 1: [Commit(1, 2), Commit(7, 8)]})
    other = Committing("other", {0: [Commit(3, 5.5)], 1: [Commit(1.5, 4)]})
    assert judged(one, other) == []
