"""What the brokers of one machine are started with: the settings of one, changed for each. Pure.

* **Ids** count up from `node.id`.
* **Ports** count up from those of the first broker. Where it has several listeners, the steps are
  as wide as it takes for no two to have the same port.
* **Log directories**: the first broker has those of the settings, so that the directory of a broker
  on its own is its own still; the others have a directory in each of them, ``broker.<id>``, which
  is no name of a partition.
* **Ports of metrics** count up from `metrics.port`; the supervisor has the one after the last.
* **Between brokers**: the listener that the settings name, or the only PLAINTEXT one. Where all
  listeners ask for something of their peers and none is named, one more is added, on the loopback
  interface, with a user and a password that are made for this run.
* **Internal topics** have two replicas, and take writes with one: brokers of one machine share its
  disks and its power, so a second replica is there for the time that a process is away.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from millstream.config.broker import BrokerConfig
from millstream.config.listeners import Listener
from millstream.model.errors import ConfigError

INTERNAL_REPLICAS: Final = 2
LISTENER: Final = "BROKERS"
USER: Final = "millstream-broker"
PASSWORD_VARIABLE: Final = "BROKERS_PASSWORD"
_LOOPBACK: Final = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class BrokerPlan:
    """One broker: its id, and what differs from the settings of all."""

    broker_id: int
    overrides: Mapping[str, str]
    listeners: tuple[Listener, ...]

    def settings(self, address: str) -> dict[str, str]:
        """Return what differs; ``address`` is where the first listener was before, "" for never."""
        listeners = list(self.listeners)
        if address and listeners[0].port == 0:
            port = int(address.rpartition(":")[2])
            first = listeners[0]
            listeners[0] = Listener(first.name, first.protocol, first.host, port)
        return {**self.overrides, "listeners": shown(listeners)}


def plan_brokers(
    config: BrokerConfig, count: int, *, ports: Sequence[int], socket: str
) -> list[BrokerPlan]:
    """Return the plans of ``count`` brokers; ConfigError where the settings contradict that."""
    if config.zookeeper_connect or config.metadata_keeper_socket:
        raise ConfigError(
            "zookeeper.connect: --brokers keeps the metadata of its brokers in the data directory; "
            "leave one of them out"
        )
    between = _between_brokers(config)
    first = (*config.listening(), *between.listeners)
    advertised = config.advertised()
    step = step_of(first, count)
    if ports and len(ports) != count:
        raise ConfigError(
            f"--ports needs one port for each of the {count} brokers, not {len(ports)}"
        )
    if ports and len(config.listening()) > 1:
        raise ConfigError("--ports is for brokers with one listener; listeners names more")
    plans = []
    for index in range(count):
        listeners = tuple(_moved(each, index * step) for each in first)
        if ports:
            chosen = listeners[0]
            listeners = (
                Listener(chosen.name, chosen.protocol, chosen.host, ports[index]),
                *listeners[1:],
            )
        _check_ports(listeners)
        broker_id = config.broker + index
        overrides = {
            "broker.id": str(broker_id),
            "node.id": str(broker_id),
            "log.dirs": ",".join(log_directories(config, index)),
            "metadata.keeper.socket": socket,
            **_replicas(config, count),
            **between.settings,
        }
        if config.metrics_port:
            overrides["metrics.port"] = str(metrics_port(config, index))
        if config.advertised_listeners is not None:
            told = [_moved(each, index * step) for each in advertised if each.host or each.port]
            overrides["advertised.listeners"] = shown([*told, *between.listeners])
        cordoned = config.cordoned_directories
        if cordoned and config.cordoned_log_dirs != ("*",):
            chosen_directories = [
                _of_broker(each, config.broker + index, index) for each in cordoned
            ]
            overrides["cordoned.log.dirs"] = ",".join(chosen_directories)
        plans.append(BrokerPlan(broker_id, overrides, listeners))
    return plans


def log_directories(config: BrokerConfig, index: int) -> list[str]:
    """Return the log directories of the broker that is the ``index``-th, from 0."""
    return [_of_broker(each, config.broker + index, index) for each in config.log_directories]


def metrics_port(config: BrokerConfig, index: int) -> int:
    """Return where the ``index``-th broker, from 0, serves its metrics; after the brokers comes the
    process that starts them. ConfigError where there is no such port.
    """
    port = config.metrics_port + index
    if port > 65535:
        raise ConfigError(
            f"metrics.port: port {port} of broker {config.broker + index} is above 65535"
        )
    return port


def directory_name(broker_id: int | str) -> str:
    """Return the name of another broker's directory in a log directory."""
    return f"broker.{broker_id}"


def step_of(listeners: Sequence[Listener], count: int) -> int:
    """Return by how much the ports of one broker differ from those of the one before."""
    ports = [each.port for each in listeners if each.port]
    step = 1
    while len({port + index * step for port in ports for index in range(count)}) < (
        len(ports) * count
    ):
        step += 1
    return step


def shown(listeners: Sequence[Listener]) -> str:
    """Return listeners as the text of a setting."""
    return ",".join(
        f"{each.name}://{f'[{each.host}]' if ':' in each.host else each.host}:{each.port}"
        for each in listeners
    )


@dataclass(frozen=True, slots=True)
class _Between:
    """What the settings have to say besides about traffic between brokers."""

    listeners: tuple[Listener, ...]
    settings: Mapping[str, str]


def _between_brokers(config: BrokerConfig) -> _Between:
    named = {"inter.broker.listener.name", "security.inter.broker.protocol"}
    is_open = any(each.protocol == "PLAINTEXT" for each in config.listening())
    has_rules = bool(config.authorizer_class_name)
    if named & config.overrides.keys() or (is_open and not has_rules):
        listener = config.inter_broker_listener()  # ConfigError where there is none
        if not _is_for_clients_alone(config, listener):
            return _Between((), {})
    # A password that is not part of any command line: other users may read those.
    password = f"${{env:{PASSWORD_VARIABLE}}}"
    users = [each for each in config.super_users.split(";") if each.strip()]
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    settings = {
        "listener.security.protocol.map": f"{config.listener_security_protocol_map},"
        f"{LISTENER}:SASL_PLAINTEXT",
        "inter.broker.listener.name": LISTENER,
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        f"listener.name.{LISTENER.lower()}.sasl.enabled.mechanisms": "PLAIN",
        f"listener.name.{LISTENER.lower()}.plain.sasl.jaas.config": (
            f'{module} required username="{USER}" password="{password}" user_{USER}="{password}";'
        ),
        "super.users": ";".join([*users, f"User:{USER}"]),
    }
    return _Between((Listener(LISTENER, "SASL_PLAINTEXT", _LOOPBACK, 0),), settings)


def _is_for_clients_alone(config: BrokerConfig, listener: str) -> bool:
    """Tell whether brokers could not authenticate on the listener that `inter.broker.listener.name`
    names: it asks for SASL, and nothing says how they do. A broker on its own, whose listeners all
    ask for users, has to name one and never connects to it.
    """
    asks_for_users = any(
        each.name == listener and each.protocol.startswith("SASL_") for each in config.listening()
    )
    return (
        asks_for_users
        and "inter.broker.listener.name" in config.overrides
        and "sasl.mechanism.inter.broker.protocol" not in config.overrides
    )


def _replicas(config: BrokerConfig, count: int) -> dict[str, str]:
    wanted = str(min(INTERNAL_REPLICAS, count))
    defaults = {
        "offsets.topic.replication.factor": wanted,
        "transaction.state.log.replication.factor": wanted,
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": wanted,
        "share.coordinator.state.topic.min.isr": "1",
        "audit.log.topic.replication.factor": wanted,
    }
    return {name: text for name, text in defaults.items() if name not in config.overrides}


def _moved(listener: Listener, by: int) -> Listener:
    port = listener.port + by if listener.port else 0
    return Listener(listener.name, listener.protocol, listener.host, port)


def _check_ports(listeners: Sequence[Listener]) -> None:
    for each in listeners:
        if each.port > 65535:
            raise ConfigError(f"listeners: port {each.port} of {each.name} is above 65535")


def _of_broker(directory: str, broker_id: int, index: int) -> str:
    return directory if index == 0 else os.path.join(directory, directory_name(broker_id))
