"""Settings of share groups: a group's own, the broker's, and bounds."""

from __future__ import annotations

import pytest

from millstream.config.broker import BrokerConfig
from millstream.config.group import check_group_config
from millstream.config.offset_reset import OffsetReset, parse_offset_reset
from millstream.model.errors import ConfigError
from millstream.runtime.replicas.partition import READ_COMMITTED, READ_UNCOMMITTED
from millstream.runtime.share.share_settings import share_settings
from millstream.share.rules import ShareRules


def test_a_group_without_settings_has_the_brokers() -> None:
    config = BrokerConfig({"group.share.record.lock.duration.ms": "20000"})
    settings = share_settings(config, {}, 1)
    assert settings.rules == ShareRules(5, 2000, 20_000, renew_acknowledge=True)
    assert settings.isolation == READ_UNCOMMITTED
    assert settings.offset_reset is OffsetReset.LATEST


def test_a_groups_own_settings_go_first() -> None:
    texts = {
        "share.delivery.count.limit": "7",
        "share.partition.max.record.locks": "300",
        "share.record.lock.duration.ms": "15000",
        "share.renew.acknowledge.enable": "false",
        "share.isolation.level": "read_committed",
        "share.auto.offset.reset": "by_duration:PT1H",
    }
    settings = share_settings(BrokerConfig({}), texts, 1)
    assert settings.rules == ShareRules(7, 300, 15_000, renew_acknowledge=False)
    assert settings.isolation == READ_COMMITTED
    assert settings.offset_reset is OffsetReset.BY_DURATION
    assert settings.reset_duration_ms == 3_600_000


def test_numbers_stay_in_the_brokers_bounds() -> None:
    texts = {
        "share.delivery.count.limit": "100",
        "share.partition.max.record.locks": "9000",
        "share.record.lock.duration.ms": "1000",
    }
    assert share_settings(BrokerConfig({}), texts, 1).rules == ShareRules(10, 4000, 15_000)


@pytest.mark.parametrize(
    ("text", "reset"),
    [
        ("earliest", (OffsetReset.EARLIEST, 0)),
        ("LATEST", (OffsetReset.LATEST, 0)),
        ("by_duration:P2D", (OffsetReset.BY_DURATION, 172_800_000)),
        ("by_duration:P1DT1H1M1.5S", (OffsetReset.BY_DURATION, 90_061_500)),
    ],
)
def test_offset_resets(text: str, reset: tuple[OffsetReset, int]) -> None:
    assert parse_offset_reset(text) == reset


@pytest.mark.parametrize(
    "text", ["", "none", "earliest:P1D", "by_duration", "by_duration:P", "by_duration:PT"]
)
def test_what_is_no_offset_reset(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        parse_offset_reset(text)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("share.auto.offset.reset", "none"),
        ("share.auto.offset.reset", "by_duration:1h"),
        ("share.isolation.level", "committed"),
        ("share.renew.acknowledge.enable", "yes"),
        ("share.delivery.count.limit", "11"),
        ("share.delivery.count.limit", "1"),
        ("share.record.lock.duration.ms", "14999"),
        ("share.partition.max.record.locks", "5000"),
    ],
)
def test_what_a_group_cannot_be_set_to(name: str, text: str) -> None:
    with pytest.raises(ConfigError):
        check_group_config({name: text}, BrokerConfig({}))


def test_dead_letters_need_a_topic_and_the_level_of_the_feature() -> None:
    texts = {
        "errors.deadletterqueue.topic.name": "dlq.orders",
        "errors.deadletterqueue.copy.record.enable": "true",
    }
    settings = share_settings(BrokerConfig({}), texts, 2)
    assert settings.rules.has_dead_letters
    assert (settings.dead_letter_topic, settings.dead_letters_copy_record) == ("dlq.orders", True)
    for without in (
        share_settings(BrokerConfig({}), texts, 1),
        share_settings(BrokerConfig({}), {}, 2),
    ):
        assert not without.rules.has_dead_letters
        assert without.dead_letter_topic == ""


def test_an_internal_topic_is_no_dead_letter_topic() -> None:
    with pytest.raises(ConfigError, match="must not start with '__'"):
        check_group_config({"errors.deadletterqueue.topic.name": "__x"}, BrokerConfig({}))
