"""The settings that both brokers run with: clients authenticate, and need rules of access."""

from __future__ import annotations

from typing import Final

from tests.interop.differential.settings import BROKER_SETTINGS

ADMIN: Final = "admin"
CLIENT: Final = "ann"

SETTINGS: Final = BROKER_SETTINGS | {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.plaintext.plain.sasl.jaas.config": (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        f'username="{ADMIN}" password="{ADMIN}" user_{ADMIN}="{ADMIN}" user_{CLIENT}="{CLIENT}";'
    ),
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": f"User:{ADMIN};User:ANONYMOUS",
    "group.coordinator.rebalance.protocols": "classic,consumer,streams",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
}
"""The listener is called PLAINTEXT and has SASL; Kafka's own controller is ANONYMOUS."""
