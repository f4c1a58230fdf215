"""The coordinators' own topics, as the broker's settings want them.

Kafka: ``AutoTopicCreationManager.creatableTopic`` and ``groupMetadataTopicConfigs``.
"""

from __future__ import annotations

from dataclasses import replace

from millstream.config.broker import BrokerConfig
from millstream.controller.topic_changes import NewTopic

CONSUMER_OFFSETS = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"


def wanted_topic(name: str, config: BrokerConfig, *, live_brokers: int) -> NewTopic:
    """Return what to create when somebody needs the topic ``name``.

    Where the settings ask for more replicas than there are brokers, internal topics get as many
    as there are: a broker on its own would have no groups otherwise.
    """
    if name == CONSUMER_OFFSETS:
        wanted = NewTopic(
            name,
            config.offsets_topic_num_partitions,
            config.offsets_topic_replication_factor,
            configs={
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(config.offsets_topic_segment_bytes),
            },
        )
    elif name == TRANSACTION_STATE:
        wanted = NewTopic(
            name,
            config.transaction_state_log_num_partitions,
            config.transaction_state_log_replication_factor,
            configs={
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "min.insync.replicas": str(config.transaction_state_log_min_isr),
                "segment.bytes": str(config.transaction_state_log_segment_bytes),
                "unclean.leader.election.enable": "false",
            },
        )
    else:
        return NewTopic(name)
    return replace(wanted, replication_factor=min(wanted.replication_factor, live_brokers))
