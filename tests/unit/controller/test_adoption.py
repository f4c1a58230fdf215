"""Logs on disk that the store does not know become topics, as whoever wrote them had them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from millstream.controller.adoption import Adoption, FoundLog, plan_adoption
from millstream.controller.context import ControllerContext, TopicState
from millstream.model.broker import BrokerId
from millstream.model.topic import TopicId, TopicPartition

ONE, NEW = TopicId(b"1" * 16), TopicId(b"n" * 16)


def plan(
    found: Mapping[TopicPartition, FoundLog], *known: TopicState
) -> tuple[Adoption, dict[str, TopicState]]:
    context = ControllerContext()
    for topic in known:
        context.put_topic(topic)
    adoption = plan_adoption(
        context, found, deleted={}, new_topic_id=lambda: NEW, broker_id=BrokerId(1)
    )
    return adoption, {topic.name: topic for topic, _ in adoption.topics}


def test_settings_and_partition_counts_from_kafkas_metadata_log() -> None:
    configs = {"cleanup.policy": "compact"}
    found = {TopicPartition("t", 1): FoundLog(ONE, 4, configs, partition_count=5)}
    _, topics = plan(found)
    assert topics["t"].topic_id == ONE
    assert topics["t"].overrides == configs
    assert len(topics["t"].partitions) == 5
    assert topics["t"].partitions[1].leader_epoch == 5
    assert topics["t"].partitions[4].leader_epoch == 0


def test_without_a_metadata_log_directory_names_give_the_partitions() -> None:
    _, topics = plan({TopicPartition("t", 2): FoundLog(None, 0)})
    assert topics["t"].topic_id == NEW
    assert topics["t"].overrides == {}
    assert len(topics["t"].partitions) == 3


@pytest.mark.slow
def test_a_count_beyond_reason_is_bounded() -> None:
    found = {TopicPartition("t", 0): FoundLog(ONE, 0, {}, partition_count=2**31 - 1)}
    _, topics = plan(found)
    assert len(topics["t"].partitions) == 100_000


def test_a_topic_that_is_known_keeps_its_settings_and_its_size() -> None:
    first = {TopicPartition("t", 0): FoundLog(ONE, 0)}
    _, topics = plan(first)
    again = {TopicPartition("t", 0): FoundLog(ONE, 0, {"retention.ms": "1"}, partition_count=9)}
    adoption, _ = plan(again, topics["t"])
    assert adoption.topics == []
    assert adoption.strays == []
