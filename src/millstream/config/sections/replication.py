"""How brokers follow and replace each other."""

from __future__ import annotations

from typing import Final

from millstream.config.definition import CLUSTER_WIDE, Config, boolean, int32, int64, string
from millstream.config.validators import at_least

MAX_LONG: Final = 2**63 - 1


class ReplicationSettings(Config):
    """They act where a partition has more than one replica."""

    min_insync_replicas: int = int32(
        "min.insync.replicas",
        1,
        at_least(1),
        "Default of `min.insync.replicas`.",
        mode=CLUSTER_WIDE,
    )
    unclean_leader_election_enable: bool = boolean(
        "unclean.leader.election.enable",
        False,
        "Default of `unclean.leader.election.enable`.",
        mode=CLUSTER_WIDE,
    )
    replica_lag_time_max_ms: int = int64(
        "replica.lag.time.max.ms",
        30_000,
        None,
        "Time in milliseconds after which a follower that does not keep up is removed from the "
        "ISR.",
    )
    replica_fetch_max_bytes: int = int32(
        "replica.fetch.max.bytes",
        1_048_576,
        at_least(0),
        "Bytes of one partition in a follower's fetch.",
    )
    replica_fetch_response_max_bytes: int = int32(
        "replica.fetch.response.max.bytes",
        10_485_760,
        at_least(0),
        "Bytes of a whole answer to a follower's fetch.",
    )
    replica_fetch_wait_max_ms: int = int32(
        "replica.fetch.wait.max.ms",
        500,
        None,
        "Time in milliseconds that a follower's fetch may wait for records.",
    )
    replica_fetch_min_bytes: int = int32(
        "replica.fetch.min.bytes",
        1,
        None,
        "Bytes that end a follower's wait.",
    )
    replica_fetch_backoff_ms: int = int32(
        "replica.fetch.backoff.ms",
        1_000,
        at_least(0),
        "Time in milliseconds that a follower waits after a failed fetch.",
    )
    replica_socket_timeout_ms: int = int32(
        "replica.socket.timeout.ms",
        30_000,
        None,
        "Time in milliseconds that a follower's request may take.",
    )
    replica_high_watermark_checkpoint_interval_ms: int = int64(
        "replica.high.watermark.checkpoint.interval.ms",
        5_000,
        None,
        "Time in milliseconds between two writes of the high watermarks.",
    )
    leader_replication_throttled_rate: int = int64(
        "leader.replication.throttled.rate",
        MAX_LONG,
        at_least(0),
        "Bytes per second that this broker sends to out-of-sync replicas in "
        "`leader.replication.throttled.replicas` of topics, averaged over the windows.",
        mode=CLUSTER_WIDE,
        internal=True,
    )
    follower_replication_throttled_rate: int = int64(
        "follower.replication.throttled.rate",
        MAX_LONG,
        at_least(0),
        "Bytes per second that this broker fetches for its out-of-sync replicas in "
        "`follower.replication.throttled.replicas` of topics, averaged over the windows.",
        mode=CLUSTER_WIDE,
        internal=True,
    )
    replication_quota_window_num: int = int32(
        "replication.quota.window.num",
        11,
        at_least(1),
        "Number of windows over which the throttled rates of replication are averaged.",
    )
    replication_quota_window_size_seconds: int = int32(
        "replication.quota.window.size.seconds",
        1,
        at_least(1),
        "Length of such a window in seconds.",
    )
    leader_lease: bool = boolean(
        "leader.lease",
        False,
        "Whether a leader refuses writes while the metadata store has not answered for a session "
        "timeout: another broker may be the leader by then, and records acknowledged with acks=1 "
        "would be lost.",
        internal=True,
        kafka=False,
    )
    replica_selector_class: str | None = string(
        "replica.selector.class",
        None,
        None,
        "With `org.apache.kafka.common.replica.RackAwareReplicaSelector` a consumer with a rack "
        "reads from an in-sync replica there; with any other selector it reads from the leader.",
    )
    controlled_shutdown_enable: bool = boolean(
        "controlled.shutdown.enable",
        True,
        "Whether a broker hands over its leaderships before it stops.",
    )
    auto_leader_rebalance_enable: bool = boolean(
        "auto.leader.rebalance.enable",
        True,
        "Whether leadership returns to preferred replicas automatically.",
    )
    leader_imbalance_check_interval_seconds: int = int64(
        "leader.imbalance.check.interval.seconds",
        300,
        at_least(1),
        "Time in seconds between two checks for leaders to move back.",
    )
    leader_imbalance_per_broker_percentage: int = int32(
        "leader.imbalance.per.broker.percentage",
        10,
        None,
        "Share of a broker's preferred leaderships, in percent, that may be elsewhere before they "
        "are moved back.",
        internal=True,
    )
