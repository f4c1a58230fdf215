"""Producer ids and transactions."""

from __future__ import annotations

from millstream.config.definition import CLUSTER_WIDE, Config, boolean, int16, int32
from millstream.config.validators import at_least


class TransactionsSettings(Config):
    """Producer ids, the transaction coordinator and its topic."""

    producer_id_expiration_ms: int = int32(
        "producer.id.expiration.ms",
        86_400_000,
        at_least(1),
        "Time in milliseconds after which the state of an idle idempotent producer is dropped.",
        mode=CLUSTER_WIDE,
    )
    producer_id_expiration_check_interval_ms: int = int32(
        "producer.id.expiration.check.interval.ms",
        600_000,
        at_least(1),
        "Time in milliseconds between two checks for idle producers.",
        internal=True,
    )
    transactional_id_expiration_ms: int = int32(
        "transactional.id.expiration.ms",
        604_800_000,
        at_least(1),
        "Time in milliseconds after which an unused transactional id is dropped.",
    )
    transaction_max_timeout_ms: int = int32(
        "transaction.max.timeout.ms",
        900_000,
        at_least(1),
        "Largest transaction timeout in milliseconds that a producer may ask for.",
    )
    transaction_state_log_num_partitions: int = int32(
        "transaction.state.log.num.partitions",
        50,
        at_least(1),
        "Partitions of `__transaction_state`.",
    )
    transaction_state_log_replication_factor: int = int16(
        "transaction.state.log.replication.factor",
        3,
        at_least(1),
        "Replicas of `__transaction_state`.",
    )
    transaction_state_log_min_isr: int = int32(
        "transaction.state.log.min.isr",
        2,
        at_least(1),
        "In-sync replicas that a write to `__transaction_state` needs.",
    )
    transaction_state_log_segment_bytes: int = int32(
        "transaction.state.log.segment.bytes",
        104_857_600,
        at_least(1),
        "Segment size in bytes of `__transaction_state`.",
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = int32(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        10_000,
        at_least(1),
        "Time in milliseconds between two checks for transactions that have timed out.",
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = int32(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        3_600_000,
        at_least(1),
        "Time in milliseconds between two checks for expired transactional ids.",
    )
    transaction_partition_verification_enable: bool = boolean(
        "transaction.partition.verification.enable",
        True,
        "Whether a transactional write is checked with the coordinator first.",
        mode=CLUSTER_WIDE,
    )
    add_partitions_to_txn_retry_backoff_ms: int = int32(
        "add.partitions.to.txn.retry.backoff.ms",
        20,
        at_least(1),
        "Pause in milliseconds before the broker tries again to add a partition to a transaction "
        "while the previous transaction is still being ended.",
    )
    add_partitions_to_txn_retry_backoff_max_ms: int = int32(
        "add.partitions.to.txn.retry.backoff.max.ms",
        100,
        at_least(0),
        "Time in milliseconds after which these attempts end, and the producer gets the error.",
    )
