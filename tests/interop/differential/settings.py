"""The settings that both brokers run with. They are kept beside the answers."""

from __future__ import annotations

from typing import Final

BROKER_SETTINGS: Final = {
    "auto.create.topics.enable": "true",
    "group.initial.rebalance.delay.ms": "0",
    "group.share.min.record.lock.duration.ms": "1000",
    "node.id": "1",
    "num.partitions": "4",
    "offsets.topic.num.partitions": "5",
    "offsets.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "5",
    "transaction.state.log.replication.factor": "1",
}
