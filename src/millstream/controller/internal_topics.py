"""The internal topics, of the coordinators and of the audit log, by the broker's settings.

Kafka: ``AutoTopicCreationManager.creatableTopic``, ``groupMetadataTopicConfigs`` and
``shareGroupStateTopicConfigs``.
"""

from __future__ import annotations

from dataclasses import replace

from millstream.config.broker import BrokerConfig
from millstream.controller.topic_changes import NewTopic

CONSUMER_OFFSETS = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"
SHARE_GROUP_STATE = "__share_group_state"
AUDIT_LOG = "__audit_log"


def wanted_topic(name: str, config: BrokerConfig, *, at_most: int | None = None) -> NewTopic:
    """Return the topic to create when ``name`` is needed.

    Where the settings ask for more replicas than ``at_most``, internal topics get that many:
    otherwise a standalone broker would have no groups. A cluster waits until there are enough
    brokers, so that its groups do not depend on the first broker for ever.
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
    elif name == SHARE_GROUP_STATE:
        wanted = NewTopic(
            name,
            config.share_coordinator_state_topic_num_partitions,
            config.share_coordinator_state_topic_replication_factor,
            configs={
                # Its coordinator deletes what snapshots have replaced.
                "cleanup.policy": "delete",
                "compression.type": "producer",
                "min.insync.replicas": str(config.share_coordinator_state_topic_min_isr),
                "retention.ms": "-1",
                "segment.bytes": str(config.share_coordinator_state_topic_segment_bytes),
            },
        )
    elif name == AUDIT_LOG:
        wanted = NewTopic(
            name,
            config.audit_log_topic_num_partitions,
            config.audit_log_topic_replication_factor,
            configs={
                "cleanup.policy": "delete",
                "compression.type": "producer",
                "retention.ms": str(config.audit_log_topic_retention_ms),
                "unclean.leader.election.enable": "false",
            },
        )
    else:
        return NewTopic(name)
    if at_most is None:
        return wanted
    return replace(wanted, replication_factor=min(wanted.replication_factor, at_most))
