"""Settings that change while the broker runs: what counts, where it comes from, what may change."""

from __future__ import annotations

import pytest

from millstream.config.broker import BrokerConfig
from millstream.config.describe import (
    ConfigEntry,
    describe_all_brokers,
    describe_broker,
    describe_topic,
)
from millstream.config.dynamic import ConfigSource, DynamicConfig, SourcedValue
from millstream.config.topic import TopicConfig
from millstream.config.value import ConfigType
from millstream.model.errors import ConfigError

FILE = ConfigSource.STATIC_BROKER_CONFIG
DEFAULT = ConfigSource.DEFAULT_CONFIG
ONE = ConfigSource.DYNAMIC_BROKER_CONFIG
ALL = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG


def dynamic(static: dict[str, str] | None = None) -> DynamicConfig:
    return DynamicConfig(BrokerConfig(static))


def test_the_nearest_value_counts_and_all_are_told() -> None:
    config = dynamic({"message.max.bytes": "1"})
    assert config.current.message_max_bytes == 1
    config.update(of_all_brokers={"message.max.bytes": "2"}, of_this_broker={})
    assert config.current.message_max_bytes == 2
    config.update(
        of_all_brokers={"message.max.bytes": "2"}, of_this_broker={"message.max.bytes": "3"}
    )
    assert config.current.message_max_bytes == 3
    name = "message.max.bytes"
    assert config.values_of(name) == (
        SourcedValue(name, "3", ONE),
        SourcedValue(name, "2", ALL),
        SourcedValue(name, "1", FILE),
        SourcedValue(name, "1048588", DEFAULT),
    )
    config.update(of_all_brokers={}, of_this_broker={})
    assert config.current.message_max_bytes == 1


def test_listeners_hear_of_the_settings_before_and_after() -> None:
    config = dynamic()
    heard: list[tuple[int, int]] = []
    config.on_change(lambda old, new: heard.append((old.max_connections, new.max_connections)))
    config.update(of_all_brokers={"max.connections": "7"}, of_this_broker={})
    assert heard == [(2**31 - 1, 7)]


def test_a_setting_that_cannot_be_changes_nothing() -> None:
    config = dynamic()
    before = config.current
    with pytest.raises(ConfigError):
        config.update(of_all_brokers={"max.connections": "x"}, of_this_broker={})
    assert config.current is before
    assert config.of_all_brokers == {}


def test_names_that_nobody_knows_are_kept_and_do_nothing() -> None:
    config = dynamic()
    config.check({"no.such": "1"}, for_all_brokers=False)
    config.update(of_all_brokers={}, of_this_broker={"no.such": "1"})
    assert entries(config)["no.such"].source is ONE


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("listener.name.x.ssl.keystore.password", "", ConfigType.PASSWORD),
        ("listener.name.x.scram-sha-256.sasl.jaas.config", "", ConfigType.PASSWORD),
        ("confluent.license", "hunter2", ConfigType.UNKNOWN),
        ("rsm.config.token", "hunter2", ConfigType.UNKNOWN),
    ],
)
def test_what_may_be_a_secret_is_told_to_nobody(name: str, text: str, kind: ConfigType) -> None:
    config = dynamic({name: text})
    in_file = entries(config)[name]
    config.update(of_all_brokers={name: text}, of_this_broker={name: text})
    of_one = entries(config)[name]
    of_all = next(each for each in describe_all_brokers(config) if each.name == name)
    for entry in (in_file, of_one, of_all):
        assert (entry.sensitive, entry.type, entry.value) == (True, kind, None)
        assert "hunter2" not in repr(entry)


def test_a_setting_of_a_listener_is_told_as_what_it_stands_for() -> None:
    told = entries(dynamic({"listener.name.x.ssl.protocol": "TLSv1.3"}))
    entry = told["listener.name.x.ssl.protocol"]
    assert (entry.value, entry.type, entry.sensitive) == ("TLSv1.3", ConfigType.STRING, False)


@pytest.mark.parametrize(
    ("texts", "for_all", "message"),
    [
        ({"num.partitions": "3"}, False, r"Cannot update these configs dynamically: \[num.part"),
        ({"listeners": "PLAINTEXT://:1"}, False, "Cannot update these configs dynamically"),
        ({"message.max.bytes": "x"}, False, "Not a number of type INT"),
        ({"ssl.key.password": "x"}, False, "only per-listener using the listener prefix"),
        ({"sasl.jaas.config": "x"}, True, "broker id must be specified: "),
        (
            {"log.cleaner.min.compaction.lag.ms": "2", "log.cleaner.max.compaction.lag.ms": "1"},
            True,
            "conflict topic config setting",
        ),
    ],
)
def test_what_may_not_change(texts: dict[str, str], for_all: bool, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        dynamic().check(texts, for_all_brokers=for_all)


def test_what_may_change() -> None:
    config = dynamic()
    config.check({"message.max.bytes": "5", "log.flush.policy": "os"}, for_all_brokers=True)
    config.check({"sasl.kerberos.service.name": "", "num.io.threads": "4"}, for_all_brokers=False)


# --- as DescribeConfigs tells them ---------------------------------------------------------


def entries(config: DynamicConfig) -> dict[str, ConfigEntry]:
    return {entry.name: entry for entry in describe_broker(config)}


def of_topic(overrides: dict[str, str], config: DynamicConfig) -> dict[str, ConfigEntry]:
    topic = TopicConfig(overrides, config.current.topic_defaults)
    return {entry.name: entry for entry in describe_topic(topic, config)}


def test_a_topics_value_comes_from_itself_from_the_broker_or_is_the_default() -> None:
    config = dynamic({"log.segment.bytes": "2000000", "log.retention.hours": "1"})
    told = of_topic({"max.message.bytes": "5"}, config)
    own = told["max.message.bytes"]
    assert (own.value, own.source) == ("5", ConfigSource.TOPIC_CONFIG)
    assert own.synonyms[1:] == (SourcedValue("message.max.bytes", "1048588", DEFAULT),)
    inherited = told["segment.bytes"]
    assert (inherited.value, inherited.source) == ("2000000", FILE)
    # log.retention.ms is what stands for retention.ms, and it is null.
    hours = told["retention.ms"]
    assert (hours.value, hours.source, hours.synonyms) == ("3600000", DEFAULT, ())
    assert told["preallocate"].source is DEFAULT
    assert told["leader.replication.throttled.replicas"].synonyms == ()
    assert "internal.segment.bytes" not in told
    assert "internal.segment.bytes" in of_topic({"internal.segment.bytes": "100"}, config)
    assert all(not entry.read_only and not entry.sensitive for entry in told.values())


def test_a_texts_form_does_not_show_in_its_value() -> None:
    told = of_topic({"retention.ms": " 1000 "}, dynamic())
    assert told["retention.ms"].value == "1000"


def test_the_brokers_settings() -> None:
    config = dynamic({"log.retention.hours": "1", "ssl.key.password": "", "num.io.threads": "4"})
    config.update(of_all_brokers={"log.retention.ms": "9"}, of_this_broker={})
    told = entries(config)
    assert (told["log.retention.ms"].value, told["log.retention.ms"].source) == ("9", ALL)
    assert [each.name for each in told["log.retention.ms"].synonyms] == [
        "log.retention.ms",
        "log.retention.hours",
        "log.retention.hours",
    ]
    # A synonym of a nearer source that stands before the setting's own first value is left out.
    assert told["log.retention.hours"].source is FILE
    password = told["ssl.key.password"]
    assert (password.value, password.sensitive) == (None, True)
    assert password.synonyms == (SourcedValue("ssl.key.password", None, FILE),)
    threads = told["num.io.threads"]
    assert (threads.value, threads.read_only, threads.source) == ("4", False, FILE)
    assert told["num.partitions"].read_only
    assert told["log.roll.ms"].value is None
    assert told["log.roll.ms"].source is DEFAULT
    assert "zookeeper.connect" not in told


def test_what_was_set_for_all_brokers() -> None:
    config = dynamic({"num.partitions": "3"})
    config.update(
        of_all_brokers={"log.retention.ms": "9"}, of_this_broker={"message.max.bytes": "5"}
    )
    minimum, entry = describe_all_brokers(config)
    assert (minimum.name, minimum.value) == ("min.insync.replicas", "1")
    assert (entry.name, entry.value, entry.source) == ("log.retention.ms", "9", ALL)
    assert entry.synonyms == (SourcedValue("log.retention.ms", "9", ALL),)


@pytest.mark.parametrize("name", ["max.connections", "max.connection.creation.rate"])
def test_nobody_is_locked_out_while_the_broker_runs(name: str) -> None:
    config = dynamic()
    for everywhere in (True, False):
        with pytest.raises(ConfigError, match=f"Invalid {name} 0"):
            config.check({name: " 0 "}, for_all_brokers=everywhere)
        with pytest.raises(ConfigError, match="zero only if"):
            config.check({"max.connections.per.ip": "0"}, for_all_brokers=everywhere)
    config.check({name: "1"}, for_all_brokers=True)


# --- what holds for all brokers ------------------------------------------------------------


def test_min_insync_replicas_is_shown_as_a_setting_of_all_brokers() -> None:
    name = "min.insync.replicas"
    config = dynamic({name: "2"})
    entry = entries(config)[name]
    assert (entry.value, entry.source) == ("2", ALL)
    assert entry.synonyms == tuple(
        SourcedValue(name, text, source)
        for text, source in (("2", ALL), ("2", FILE), ("1", DEFAULT))
    )
    (of_all,) = describe_all_brokers(config)
    assert (of_all.name, of_all.value) == (name, "2")
    config.update(of_all_brokers={name: "3"}, of_this_broker={})
    assert of_topic({}, config)[name].synonyms[0] == SourcedValue(name, "3", ALL)
    (of_all,) = describe_all_brokers(config)
    assert of_all.value == "3"


def test_a_throttle_has_no_default_and_no_documentation() -> None:
    name = "leader.replication.throttled.rate"
    config = dynamic()
    assert name not in entries(config)
    config.update(of_all_brokers={name: "5"}, of_this_broker={})
    entry = entries(config)[name]
    assert (entry.value, entry.doc) == ("5", None)
    assert entry.synonyms == (SourcedValue(name, "5", ALL),)


@pytest.mark.parametrize("for_all", [False, True])
@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({"num.io.threads": "7"}, "num.io.threads=7, .* at least half the current value 17 "),
        ({"num.io.threads": "35"}, "threads=35, .* greater than double the current value 17 "),
        ({"num.replica.fetchers": "3"}, "greater than double the current value 1 "),
        ({"log.cleaner.threads": "0"}, "Log cleaner threads should be at least 1 "),
        ({"log.cleaner.threads": "1"}, "reduced to less than half the current value 4 "),
        ({"log.cleaner.threads": "9"}, "increased to more than double the current value 4 "),
    ],
)
def test_a_thread_pool_does_not_jump(texts: dict[str, str], message: str, for_all: bool) -> None:
    config = dynamic({"num.io.threads": "17", "log.cleaner.threads": "4"})
    kept = {} if "num.io.threads" in texts else {"num.io.threads": "17"}
    with pytest.raises(ConfigError, match=message):
        config.check({**kept, **texts}, for_all_brokers=for_all)


def test_a_thread_pool_goes_step_by_step() -> None:
    config = dynamic({"log.cleaner.threads": "0"})
    config.check({"message.max.bytes": "5"}, for_all_brokers=True)
    config.check({"num.io.threads": "16", "log.retention.ms": "1"}, for_all_brokers=True)
    config.update(of_all_brokers={"num.io.threads": "16"}, of_this_broker={})
    config.check({"num.io.threads": "32"}, for_all_brokers=True)
    config.check({}, for_all_brokers=True)
    with pytest.raises(ConfigError, match="double the current value 16"):
        config.check({"num.io.threads": "33"}, for_all_brokers=True)
