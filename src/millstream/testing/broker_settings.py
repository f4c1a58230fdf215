"""The settings of a broker under test, as far as a test does not give its own."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from millstream.keeper.socket_path import socket_in
from millstream.testing.frames import BETWEEN_BROKERS

_QUICK: Final = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.num.partitions": "4",
    "log.flush.policy": "os",
    "log.initial.task.delay.ms": "1000",
}
"""Settings that make tests quick. A killed process loses nothing that the system has."""


def settings_of_broker(
    broker_id: int, directory: Path, *, port: int, protocol: str
) -> dict[str, str]:
    """Return the settings of a broker whose files are in ``directory``. It listens for clients on
    ``port``, with one of Kafka's security protocols.
    """
    return {
        "broker.id": str(broker_id),
        "log.dirs": str(directory / "data"),
        "listener.security.protocol.map": f"CLIENT:{protocol},{BETWEEN_BROKERS}:PLAINTEXT",
        "inter.broker.listener.name": BETWEEN_BROKERS,
        "listeners": f"CLIENT://127.0.0.1:{port},{BETWEEN_BROKERS}://127.0.0.1:0",
        **_QUICK,
    }


def settings_of_cluster(brokers: int, store: Path) -> dict[str, str]:
    """Return what each of several brokers has besides. ``store`` is the keeper's directory."""
    replicas, in_sync = str(min(3, brokers)), str(min(2, brokers - 1))
    return {
        "metadata.keeper.socket": str(socket_in(store)),
        "zookeeper.session.timeout.ms": "6000",
        "replica.lag.time.max.ms": "10000",
        "default.replication.factor": replicas,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "share.coordinator.state.topic.replication.factor": replicas,
        "min.insync.replicas": in_sync,
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.min.isr": in_sync,
    }
