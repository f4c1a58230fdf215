"""Whether the settings of brokers are wise. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_address
from typing import Final

from millstream.client.doctor import Severity
from millstream.config.listeners import Listener, parse_listeners, parse_protocol_map
from millstream.inspection.findings import Finding, duration, names, not_told, quoted, ranked
from millstream.inspection.settings_health import SettingsSight, judge_topics
from millstream.model.errors import ConfigError

_PLAIN_MAP: Final = "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL"
_SHORT_SESSION_MS: Final = 6_000
_LONG_LAG_MS: Final = 120_000
_HOUR_MS: Final = 3_600_000
_SESSIONS: Final = (
    "broker.session.timeout.ms",
    "zookeeper.session.timeout.ms",
    "group.consumer.session.timeout.ms",
)
_ALIKE: Final = (
    "auto.create.topics.enable",
    "authorizer.class.name",
    "default.replication.factor",
    "log.cleaner.enable",
    "log.flush.policy",
    "log.retention.bytes",
    "log.retention.ms",
    "message.max.bytes",
    "min.insync.replicas",
    "offsets.topic.replication.factor",
    "replica.lag.time.max.ms",
    "unclean.leader.election.enable",
)
"""What should not depend on which broker happens to lead, or to be the controller."""


def judge_settings(sight: SettingsSight) -> list[Finding]:
    """Return which settings of topics and brokers are unwise, the worst first."""
    found = list(judge_topics(sight))
    for judge in (
        _automatic_topics,
        _lag_times,
        _sessions,
        _internal_replicas,
        _transactions,
        _listeners,
        _rules,
        _directories,
        _differences,
    ):
        found += judge(sight)
    found += (not_told("settings", what, why) for what, why in sight.untold.items())
    return ranked(found)


def _set(sight: SettingsSight, brokers: list[int], name: str, value: object) -> str:
    """Return the command that sets a value: at once, or at the next start where it must be."""
    setting = sight.brokers[brokers[0]].get(name)
    if setting is None or setting.is_read_only:
        return f"millstream serve --override {quoted(f'{name}={value}')}"
    return f"millstream config alter {quoted(f'{name}={value}')} --broker-defaults"


def _with(sight: SettingsSight, name: str, value: str) -> list[int]:
    return [each for each in sorted(sight.brokers) if sight.value(each, name) == value]


def _automatic_topics(sight: SettingsSight) -> Iterator[Finding]:
    name = "auto.create.topics.enable"
    brokers = _with(sight, name, "true")
    if brokers:
        yield Finding(
            Severity.NOTE,
            name,
            f"Broker {names(brokers)}: a misspelt name makes a topic, with the defaults for "
            "partitions and replicas, and its writer hears of nothing.",
            _set(sight, brokers, name, "false"),
        )


def _lag_times(sight: SettingsSight) -> Iterator[Finding]:
    name = "replica.lag.time.max.ms"
    for broker in sorted(sight.brokers):
        lag, wait = (sight.value(broker, each) for each in (name, "replica.fetch.wait.max.ms"))
        if lag is None or len(sight.brokers) < 2:
            continue
        if wait is not None and int(lag) < 2 * int(wait):
            yield Finding(
                Severity.RISK,
                name,
                f"Broker {broker}: it is {lag} ms, and a follower's fetch waits up to {wait} ms "
                "for records: replicas fall out of sync on idle topics.",
                _set(sight, [broker], name, 30_000),
            )
        elif int(lag) > _LONG_LAG_MS:
            yield Finding(
                Severity.RISK,
                name,
                f"Broker {broker}: writes with acks=all wait up to {duration(int(lag))} for a "
                "follower that is gone.",
                _set(sight, [broker], name, 30_000),
            )


def _sessions(sight: SettingsSight) -> Iterator[Finding]:
    for name in _SESSIONS:
        short = [
            each
            for each in sorted(sight.brokers)
            if (value := sight.value(each, name)) is not None and int(value) < _SHORT_SESSION_MS
        ]
        if short:
            yield Finding(
                Severity.RISK,
                name,
                f"Broker {names(short)}: {sight.value(short[0], name)} ms is shorter than a pause "
                "of a busy machine: what only was slow is taken for dead, and leaders or "
                "partitions move.",
                _set(sight, short, name, 9_000),
            )


def _internal_replicas(sight: SettingsSight) -> Iterator[Finding]:
    if len(sight.brokers) < 3:
        return
    for name in (
        "offsets.topic.replication.factor",
        "transaction.state.log.replication.factor",
        "default.replication.factor",
    ):
        brokers = _with(sight, name, "1")
        if brokers:
            yield Finding(
                Severity.RISK,
                name,
                f"Broker {names(brokers)}: it is 1 on a cluster of {len(sight.brokers)} brokers: "
                "what is made with it is gone while one broker is.",
                _set(sight, brokers, name, 3),
            )


def _transactions(sight: SettingsSight) -> Iterator[Finding]:
    name = "transaction.max.timeout.ms"
    long = [
        each
        for each in sorted(sight.brokers)
        if (value := sight.value(each, name)) is not None and int(value) > _HOUR_MS
    ]
    if long:
        longest = int(sight.value(long[0], name) or 0)
        yield Finding(
            Severity.NOTE,
            name,
            f"Broker {names(long)}: a transaction whose producer died may hold readers of "
            f"committed records for {duration(longest)}.",
            _set(sight, long, name, 900_000),
        )


def _open_listeners(sight: SettingsSight, broker: int) -> list[Listener]:
    """Return the listeners that are told to clients, or that the broker has; none if unreadable."""
    text = sight.value(broker, "advertised.listeners") or sight.value(broker, "listeners") or ""
    protocols = sight.value(broker, "listener.security.protocol.map") or _PLAIN_MAP
    try:
        return list(
            parse_listeners(
                "listeners", filter(None, text.split(",")), parse_protocol_map(protocols)
            )
        )
    except ConfigError:
        return []


def _is_public(host: str) -> bool:
    """Tell whether an address is one of the Internet; a name is not looked up."""
    try:
        return ip_address(host).is_global
    except ValueError:
        return False


def _is_of_this_machine(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _listeners(sight: SettingsSight) -> Iterator[Finding]:
    for broker in sorted(sight.brokers):
        for listener in _open_listeners(sight, broker):
            if not _is_public(listener.host) or listener.protocol in ("SSL", "SASL_SSL"):
                continue
            told = f"{listener.host}:{listener.port}"
            what = (
                "clients are not authenticated, and everything can be read on the network"
                if listener.protocol == "PLAINTEXT"
                else "passwords and records can be read on the network"
            )
            yield Finding(
                Severity.RISK,
                "listeners",
                f"Broker {broker}: {listener.name} at the public address {told} is "
                f"{listener.protocol}: {what}.",
                f"millstream serve --override listeners=SASL_SSL://:{listener.port} --override "
                f"advertised.listeners=SASL_SSL://{told}",
            )


def _rules(sight: SettingsSight) -> Iterator[Finding]:
    name = "authorizer.class.name"
    without = [
        each
        for each in sorted(sight.brokers)
        if sight.value(each, name) == ""
        and any(not _is_of_this_machine(one.host) for one in _open_listeners(sight, each))
    ]
    if without:
        yield Finding(
            Severity.NOTE,
            name,
            f"Broker {names(without)}: without rules every client that can connect may do "
            "everything.",
            "millstream serve --override "
            "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        )
    everyone = "allow.everyone.if.no.acl.found"
    lenient = [
        each for each in _with(sight, everyone, "true") if sight.value(each, name) not in ("", None)
    ]
    if lenient:
        yield Finding(
            Severity.RISK,
            everyone,
            f"Broker {names(lenient)}: every resource without a rule is open to everybody.",
            _set(sight, lenient, everyone, "false"),
        )


def _directories(sight: SettingsSight) -> Iterator[Finding]:
    for broker in sorted(sight.brokers):
        text = sight.value(broker, "log.dirs") or sight.value(broker, "log.dir") or ""
        temporary = [
            each.strip()
            for each in text.split(",")
            if each.strip().startswith(("/tmp/", "/dev/shm"))
        ]
        if temporary:
            yield Finding(
                Severity.RISK,
                "log.dirs",
                f"Broker {broker}: {names(temporary)} is emptied at a restart of the machine, or "
                "by whatever tidies it up.",
                "millstream serve --data-dir /var/lib/millstream",
            )


def _differences(sight: SettingsSight) -> Iterator[Finding]:
    for name in _ALIKE:
        values = {broker: sight.value(broker, name) for broker in sorted(sight.brokers)}
        told = {broker: value for broker, value in values.items() if value is not None}
        if len(set(told.values())) > 1:
            each = ", ".join(f"{value} on broker {broker}" for broker, value in told.items())
            yield Finding(
                Severity.RISK,
                name,
                f"Brokers have different values ({each}): what happens depends on which of them "
                "leads.",
                _set(sight, list(told), name, next(iter(told.values()))),
            )
