"""Settings of a broker: a Kafka `server.properties`, read, checked and typed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Final

from millstream.config.accepted import FREE_PREFIXES, OLDER_NAMES, accepted_keys
from millstream.config.definition import Config, ConfigKey, fill
from millstream.config.listeners import (
    TLS_PROTOCOLS,
    Listener,
    parse_listeners,
    parse_protocol_map,
    refuse_unserved,
)
from millstream.config.protection import PROTECTING_NAMES, acts, protects, refuse_unprotected
from millstream.config.sections.audit import FILE, AuditSettings
from millstream.config.sections.authentication import AuthenticationSettings
from millstream.config.sections.authorization import AuthorizationSettings
from millstream.config.sections.encryption import EncryptionSettings
from millstream.config.sections.groups import GroupsSettings
from millstream.config.sections.identity import IdentitySettings
from millstream.config.sections.logs import LogsSettings
from millstream.config.sections.monitoring import MonitoringSettings
from millstream.config.sections.network import NetworkSettings
from millstream.config.sections.quotas import QuotasSettings
from millstream.config.sections.replication import ReplicationSettings
from millstream.config.sections.share import ShareSettings
from millstream.config.sections.transactions import TransactionsSettings
from millstream.config.sections.zookeeper_security import ZooKeeperSecuritySettings
from millstream.config.topic import TopicConfig, inherited_topic_config
from millstream.config.unguarded import refuse_unguarded
from millstream.config.value import Value
from millstream.model.broker import BrokerId
from millstream.model.errors import ConfigError

SECTIONS: Final[tuple[type[Config], ...]] = (
    IdentitySettings,
    NetworkSettings,
    LogsSettings,
    QuotasSettings,
    ReplicationSettings,
    GroupsSettings,
    ShareSettings,
    TransactionsSettings,
    AuthenticationSettings,
    EncryptionSettings,
    AuthorizationSettings,
    AuditSettings,
    MonitoringSettings,
    ZooKeeperSecuritySettings,
)
DEFAULT_NODE_ID: Final = 1
RACK_AWARE_SELECTOR: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


class BrokerConfig(
    IdentitySettings,
    NetworkSettings,
    LogsSettings,
    QuotasSettings,
    ReplicationSettings,
    GroupsSettings,
    ShareSettings,
    TransactionsSettings,
    AuthenticationSettings,
    EncryptionSettings,
    AuthorizationSettings,
    AuditSettings,
    MonitoringSettings,
    ZooKeeperSecuritySettings,
    final=True,
):
    """The settings of one broker. ``topic_defaults`` is what a topic without own settings has."""

    __slots__ = ("overrides", "topic_defaults")

    topic_defaults: TopicConfig

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        """Read texts by Kafka's names; ConfigError names the setting that is wrong or unknown."""
        settings = _with_both_ids(settings or {})
        values = {key.attribute: key.default for key in self.keys.values()}
        for name, text in settings.items():
            key = self.keys.get(name)
            if key is not None:
                values[key.attribute] = key.parse(text)
            else:
                _check_without_effect(name, text)
        refuse_unprotected(settings)
        if values["zookeeper_connect"] and "log.flush.policy" not in settings:
            # Replicas keep what the page cache of one broker loses; alone it is flushed. The
            # brokers at a keeper are on one machine, and lose their page cache together.
            values["log_flush_policy"] = "os"
        if values["zookeeper_connect"] and values["metadata_keeper_socket"]:
            raise ConfigError("give one of zookeeper.connect and metadata.keeper.socket")
        _agree_on_node_id(values)
        _check_roles(values)
        _check_cordoned(values)
        fill(self, values, settings)
        object.__setattr__(self, "topic_defaults", inherited_topic_config(self))
        _check_times(self.topic_defaults)
        _check_connections(self)
        _check_replication(self)
        refuse_unguarded(self)
        _check_audit_log(self)

    @property
    def broker(self) -> BrokerId:
        """The id of this broker."""
        assert self.node_id is not None
        return BrokerId(self.node_id)

    @property
    def is_in_cluster(self) -> bool:
        """True when the broker shares its metadata with others."""
        return bool(self.zookeeper_connect or self.metadata_keeper_socket)

    @property
    def selects_replicas_by_rack(self) -> bool:
        """True when consumers are sent to the replica in their rack (KIP-392)."""
        return self.replica_selector_class == RACK_AWARE_SELECTOR

    @property
    def log_directories(self) -> tuple[str, ...]:
        """The directories of the logs; the first one holds the broker's metadata."""
        return self.log_dirs or self.log_dir

    @property
    def cordoned_directories(self) -> tuple[str, ...]:
        """The directories of the logs that take no new replicas (KIP-1066)."""
        cordoned = self.cordoned_log_dirs
        return self.log_directories if cordoned == ("*",) else cordoned

    @property
    def has_tls(self) -> bool:
        """True when a listener is encrypted."""
        return any(each.protocol in TLS_PROTOCOLS for each in self.listening())

    @property
    def outlives_hang_up(self) -> bool:
        """True when SIGHUP has files read or opened again instead of stopping the broker."""
        return self.has_tls or bool(self.audit_log_file_path)

    def listening(self) -> tuple[Listener, ...]:
        """Return where to listen, a KRaft controller's listeners left out."""
        found = self._parse("listeners", self.listeners)
        if not found:
            raise ConfigError("listeners: a broker must listen somewhere")
        refuse_unserved(found)
        return found

    def advertised(self) -> tuple[Listener, ...]:
        """Return what clients are told, one for each listener; by default the listeners."""
        listening = self.listening()
        advertised = listening
        if self.advertised_listeners is not None:
            advertised = self._parse("advertised.listeners", self.advertised_listeners)
        names = {listener.name for listener in listening}
        for listener in advertised:
            if listener.name not in names:
                raise ConfigError(
                    f"advertised.listeners names {listener.name}, which listeners does not have"
                )
            if listener.host == "0.0.0.0":
                hint = (
                    " listeners says so: set advertised.listeners as well (serve --advertise "
                    "HOST:PORT), or leave the host out (NAME://:port)."
                )
                raise ConfigError(
                    "advertised.listeners cannot use the nonroutable meta-address 0.0.0.0. "
                    "Use a routable IP address."
                    + (hint if self.advertised_listeners is None else "")
                )
        told = {listener.name: listener for listener in advertised}
        return tuple(
            told.get(listener.name) or _of_this_machine(listener) for listener in listening
        )

    def inter_broker_listener(self) -> str:
        """Return the name of the listener that brokers use among themselves; ConfigError when there
        is no such listener in `advertised.listeners`.
        """
        name = self._inter_broker_name()
        told = self.advertised_listeners
        advertised = None if told is None else self._parse("advertised.listeners", told)
        if advertised is not None and all(each.name != name for each in advertised):
            raise ConfigError(
                "inter.broker.listener.name must be a listener name defined in "
                "advertised.listeners. The valid options based on currently configured listeners "
                f"are {','.join(each.name for each in advertised)}"
            )
        return name

    def _inter_broker_name(self) -> str:
        listening = self.listening()
        name = self.inter_broker_listener_name
        if name is not None:
            if all(each.name != name.upper() for each in listening):
                raise ConfigError(f"inter.broker.listener.name: there is no listener {name}")
            return name.upper()
        for each in listening:
            if each.protocol == self.security_inter_broker_protocol:
                return each.name
        raise ConfigError(
            "security.inter.broker.protocol: no listener speaks "
            f"{self.security_inter_broker_protocol}"
        )

    def _parse(self, setting: str, items: tuple[str, ...]) -> tuple[Listener, ...]:
        controller = {name.upper() for name in self.controller_listener_names or ()}
        served = [item for item in items if item.partition("://")[0].upper() not in controller]
        return parse_listeners(
            setting, served, parse_protocol_map(self.listener_security_protocol_map)
        )


def _of_this_machine(listener: Listener) -> Listener:
    """Return how to advertise a listener that `advertised.listeners` leaves out: nobody can connect
    to "every address", so the machine's name takes its place.
    """
    return replace(listener, host="") if listener.host == "0.0.0.0" else listener


def _with_both_ids(settings: Mapping[str, str]) -> dict[str, str]:
    """Give each of `node.id` and its older name the text of the other where one of them is set
    (Kafka: ``KafkaConfig.populateSynonyms``).
    """
    completed = dict(settings)
    if "node.id" in settings:
        completed.setdefault("broker.id", settings["node.id"])
    elif settings.get("broker.id", "-1").strip() != "-1":
        completed["node.id"] = settings["broker.id"]
    return completed


def _agree_on_node_id(values: dict[str, Value]) -> None:
    """Let `node.id` and its older name `broker.id` have one value."""
    if values["node_id"] is None:
        values["node_id"] = values["broker_id"] = DEFAULT_NODE_ID
    if values["node_id"] != values["broker_id"]:
        raise ConfigError("You must set `node.id` to the same value as `broker.id`.")


def _check_times(defaults: TopicConfig) -> None:
    """Refuse times that no unit's own limits rule out (Kafka: ``KafkaConfig.validateValues``)."""
    if defaults.segment_ms < 1:
        raise ConfigError("log.roll.ms must be greater than or equal to 1")
    if defaults.segment_jitter_ms < 0:
        raise ConfigError("log.roll.jitter.ms must be greater than or equal to 0")
    if defaults.retention_ms == 0:
        raise ConfigError("log.retention.ms must be unlimited (-1) or, greater than or equal to 1")


def _check_connections(config: BrokerConfig) -> None:
    """Refuse limits that keep every client out (Kafka: ``KafkaConfig.validateValues``)."""
    if config.max_connections_per_ip == 0 and not config.max_connections_per_ip_overrides:
        raise ConfigError(
            "max.connections.per.ip can be set to zero only if max.connections.per.ip.overrides "
            "property is set."
        )
    if 0 < config.queued_max_request_bytes < config.socket_request_max_bytes:
        raise ConfigError(
            "queued.max.request.bytes must be larger or equal to socket.request.max.bytes"
        )
    name = "connection.failed.authentication.delay.ms"
    delay_ms = config.connection_failed_authentication_delay_ms
    if 0 <= config.connections_max_idle_ms <= delay_ms:
        raise ConfigError(
            f"{name}={delay_ms} should always be less than connections.max.idle.ms="
            f"{config.connections_max_idle_ms} to prevent failed authentication responses from "
            "timing out"
        )


def _check_replication(config: BrokerConfig) -> None:
    """Refuse a wait of followers that others take for a failure."""
    wait_ms = config.replica_fetch_wait_max_ms
    if wait_ms > config.replica_socket_timeout_ms:
        raise ConfigError(
            "replica.socket.timeout.ms should always be at least replica.fetch.wait.max.ms to "
            "prevent unnecessary socket timeouts"
        )
    if wait_ms > config.replica_lag_time_max_ms:
        raise ConfigError(
            "replica.fetch.wait.max.ms should always be less than or equal to "
            "replica.lag.time.max.ms to prevent frequent changes in ISR"
        )


def _check_audit_log(config: BrokerConfig) -> None:
    """Refuse a destination of the audit log that is nowhere, and a topic that keeps nothing."""
    to_file = [
        name for name in AuditSettings.keys if config.value(name) == FILE and "path" not in name
    ]
    if to_file and not config.audit_log_file_path:
        raise ConfigError(f"{to_file[0]}=file needs audit.log.file.path")
    if config.audit_log_topic_retention_ms == 0:
        raise ConfigError("audit.log.topic.retention.ms must be -1 or at least 1")


def _check_cordoned(values: Mapping[str, Value]) -> None:
    cordoned, directories = values["cordoned_log_dirs"], values["log_dirs"] or values["log_dir"]
    assert isinstance(cordoned, tuple)
    assert isinstance(directories, tuple)
    if "*" in cordoned:
        if len(cordoned) > 1:
            raise ConfigError(
                "When cordoned.log.dirs is set to *, it must not contain other values"
            )
    elif not set(cordoned) <= set(directories):
        raise ConfigError("All entries in cordoned.log.dirs must be present in log.dirs or log.dir")


def _check_roles(values: Mapping[str, Value]) -> None:
    roles = values["process_roles"]
    if isinstance(roles, tuple) and "broker" not in roles:
        raise ConfigError(
            "process.roles: Millstream has no process that is only a controller; add broker"
        )


@cache
def all_broker_keys() -> Mapping[str, ConfigKey]:
    """Return every setting that a broker knows by name: those it acts on, then the others."""
    return {**BrokerConfig.keys, **accepted_keys()}


@cache
def all_known_names() -> frozenset[str]:
    """Return the name of every setting that a broker may be given, those of older versions of Kafka
    included; names that plug-ins choose are not among them.
    """
    return OLDER_NAMES | PROTECTING_NAMES | all_broker_keys().keys()


def value_of(config: BrokerConfig, key: ConfigKey) -> Value:
    """Return the value of a setting, whether the broker acts on it or only reports it."""
    if key.effective:
        return config.value(key.name)
    text = config.overrides.get(key.name)
    return key.default if text is None else key.parse(text)


def _check_without_effect(name: str, text: str) -> None:
    """Refuse an unknown name, and a text that Kafka would refuse."""
    key = accepted_keys().get(name)
    if key is not None:
        key.parse(text)
    elif not (name in OLDER_NAMES or name.startswith(FREE_PREFIXES) or protects(name)):
        raise ConfigError(unknown_setting(name))


def unknown_setting(name: str) -> str:
    """Return the error message for an unknown setting, with the nearest name that is known."""
    from difflib import get_close_matches

    near = get_close_matches(name, all_known_names(), n=1, cutoff=0.6)
    hint = f"; the nearest is {near[0]}" if near else ""
    return f"unknown setting {name}{hint}"


def without_effect(settings: Mapping[str, str]) -> list[str]:
    """Return the names among ``settings`` that Millstream accepts and does not act on, sorted."""
    return sorted(name for name in settings if name not in BrokerConfig.keys and not acts(name))
