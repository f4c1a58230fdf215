"""Settings of a topic."""

from __future__ import annotations

import pytest

from millstream.config.broker import BrokerConfig
from millstream.config.topic import TopicConfig, validate
from millstream.model.errors import ConfigError


def test_every_setting_is_an_attribute_with_its_default() -> None:
    config = TopicConfig()
    for key in TopicConfig.keys.values():
        assert getattr(config, key.attribute) == key.default
    assert config.segment_bytes == 1_073_741_824
    assert config.cleanup_policy == ("delete",)
    assert config.deletes
    assert not config.compacts


def test_settings_of_its_own_stand_over_the_brokers() -> None:
    broker = BrokerConfig({"log.retention.hours": "1", "log.segment.bytes": "2000000"})
    config = TopicConfig({"segment.bytes": "3000000"}, broker.topic_defaults)
    assert config.segment_bytes == 3_000_000
    assert config.retention_ms == 3_600_000
    assert config.overrides == {"segment.bytes": "3000000"}
    assert broker.topic_defaults.segment_bytes == 2_000_000
    assert broker.topic_defaults.overrides == {}


@pytest.mark.parametrize(
    ("settings", "name", "value"),
    [
        ({"log.retention.minutes": "2"}, "retention.ms", 120_000),
        ({"log.retention.minutes": "2", "log.retention.ms": "7"}, "retention.ms", 7),
        ({"log.retention.ms": "-1"}, "retention.ms", -1),
        ({"log.retention.hours": "-1"}, "retention.ms", -1),
        ({"log.roll.hours": "2"}, "segment.ms", 7_200_000),
        ({"log.roll.jitter.hours": "1"}, "segment.jitter.ms", 3_600_000),
        ({"log.flush.scheduler.interval.ms": "9"}, "flush.ms", 9),
        ({"log.flush.scheduler.interval.ms": "9", "log.flush.interval.ms": "8"}, "flush.ms", 8),
        ({"log.flush.policy": "os"}, "flush.policy", "os"),
        ({"log.record.validation": "strict"}, "record.validation", "strict"),
        ({"log.cleanup.policy": "compact,delete"}, "cleanup.policy", ("compact", "delete")),
        ({"message.max.bytes": "5"}, "max.message.bytes", 5),
        ({"min.insync.replicas": "2"}, "min.insync.replicas", 2),
    ],
)
def test_the_first_broker_setting_that_is_set_is_inherited(
    settings: dict[str, str], name: str, value: object
) -> None:
    assert BrokerConfig(settings).topic_defaults.value(name) == value


def test_unknown_names_are_refused_before_wrong_values() -> None:
    with pytest.raises(ConfigError, match=r"^Unknown topic config name: no.such$"):
        TopicConfig({"segment.bytes": "x", "no.such": "1"})
    # Values are checked in the order in which the settings are declared, whatever was given first.
    with pytest.raises(ConfigError, match=r"segment.bytes"):
        TopicConfig({"retention.ms": "x", "segment.bytes": "x"})


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"},
            r"conflict topic config setting min.compaction.lag.ms \(10\) > "
            r"max.compaction.lag.ms \(5\)",
        ),
        ({"remote.storage.enable": "true"}, "Tiered Storage functionality is disabled"),
    ],
)
def test_contradictions_are_refused(overrides: dict[str, str], message: str) -> None:
    config = TopicConfig(overrides)
    with pytest.raises(ConfigError, match=message):
        validate(config)


def test_defaults_contradict_nothing() -> None:
    validate(TopicConfig())


def test_a_config_does_not_change() -> None:
    config = TopicConfig()
    with pytest.raises(AttributeError, match="do not change"):
        config.segment_bytes = 1
    with pytest.raises(AttributeError, match="do not change"):
        del config.segment_bytes
    with pytest.raises(AttributeError):
        config.no_such = 1  # type: ignore[attr-defined]


def test_a_config_is_small() -> None:
    assert not hasattr(TopicConfig(), "__dict__")


def test_the_internal_segment_size_counts_first() -> None:
    assert TopicConfig({"segment.bytes": "2000000"}).roll_bytes == 2_000_000
    assert TopicConfig({"internal.segment.bytes": "100"}).roll_bytes == 100


def test_same_values() -> None:
    one = TopicConfig({"retention.ms": "604800000"})
    assert one.same_values(TopicConfig())
    assert not one.same_values(TopicConfig({"retention.ms": "1"}))
