"""Subscriptions by regular expression."""

from __future__ import annotations

import pytest
from tests.unit.coordinator.consumer.consumer_scene import (
    Consumer,
    ConsumerScene,
    settle,
    topics,
)

from millstream.coordinator.group.consumer import regular_expressions
from millstream.model.errors import ErrorCode, KafkaError


@pytest.fixture
def scene() -> ConsumerScene:
    return ConsumerScene(topics=topics(foo_1=2, foo_2=1, bar=1))


def by_regex(scene: ConsumerScene, member_id: str, regex: str) -> Consumer:
    return Consumer(scene, member_id, names=None, regex=regex)


def test_an_expression_stands_for_the_topics_whose_whole_name_it_matches(
    scene: ConsumerScene,
) -> None:
    one = by_regex(scene, "one", "foo_.")
    settle(scene, one)
    assert one.owned == {"foo_1": [0, 1], "foo_2": [0]}
    assert scene.consumers.expressions["foo_."].topics == {"foo_1", "foo_2"}
    assert scene.consumers.is_subscribed_to("foo_1")
    two = by_regex(scene, "two", "oo_1")
    settle(scene, one, two, rounds=20)
    assert two.owned == {}


def test_topics_that_come_later_are_found(scene: ConsumerScene) -> None:
    one = by_regex(scene, "one", "foo.*")
    settle(scene, one)
    scene.put_topic("foo_3", 2)
    settle(scene, one, rounds=14)
    assert one.owned["foo_3"] == [0, 1]
    scene.remove_topic("foo_1")
    settle(scene, one, rounds=14)
    assert "foo_1" not in one.owned


def test_names_and_an_expression_add_up(scene: ConsumerScene) -> None:
    one = Consumer(scene, "one", names=["bar"], regex="foo_2")
    settle(scene, one)
    assert one.owned == {"bar": [0], "foo_2": [0]}


def test_a_member_that_gives_up_its_expression_keeps_the_names(scene: ConsumerScene) -> None:
    one = Consumer(scene, "one", names=["bar"], regex="foo_2")
    settle(scene, one)
    epoch = scene.consumers.group_epoch
    answer = scene.beat("one", one.epoch, regex="", owned=one.owned)
    assert scene.assigned(answer) == {"bar": [0]}
    assert scene.consumers.group_epoch == epoch + 1


def test_an_expression_that_nobody_uses_any_more_is_removed(scene: ConsumerScene) -> None:
    one, two = by_regex(scene, "one", "foo.*"), by_regex(scene, "two", "foo.*")
    settle(scene, one, two)
    scene.beat("one", one.epoch, regex="bar", owned={})
    settle(scene, two)
    assert set(scene.consumers.expressions) == {"foo.*", "bar"}
    two.epoch = scene.beat("two", two.epoch, regex="bar", owned={}).member_epoch
    assert set(scene.consumers.expressions) == {"bar"}, "a member chose another"
    settle(scene, two)
    scene.beat("one", 0, names=["bar"], regex="")
    scene.beat("two", -1)
    assert scene.consumers.expressions == {}, "the last member that used it has left"
    restarted = scene.loaded()
    assert isinstance(restarted, ConsumerScene)
    assert restarted.consumers.expressions == scene.consumers.expressions


@pytest.mark.parametrize("expression", ["(a", "a**", "[z-a]", r"(a)\1", "x" * 5_000])
def test_an_invalid_expression_is_refused(scene: ConsumerScene, expression: str) -> None:
    assert scene.beat_error("one", regex=expression) is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert len(scene.coordinator.groups) == 0


def test_an_expression_with_a_huge_program_is_refused() -> None:
    with pytest.raises(KafkaError):
        regular_expressions.check("((a{100}){100}){100}")


def test_an_expression_that_explodes_elsewhere_is_linear_here() -> None:
    name = "a" * 240
    assert regular_expressions.resolve(["(a|a)*b", "(a*)*"], [name]) == {
        "(a|a)*b": frozenset(),
        "(a*)*": frozenset({name}),
    }


def test_the_number_of_expressions_in_a_group_is_bounded(
    scene: ConsumerScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(regular_expressions, "MAX_EXPRESSIONS", 1)
    scene.beat("one", regex="a")
    assert scene.beat_error("two", regex="b") is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert scene.beat_error("two", regex="a") is ErrorCode.NONE
