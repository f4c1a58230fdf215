"""The audit log: which kinds of event are recorded, where, and how many of them."""

from __future__ import annotations

from typing import Final

from millstream.config.definition import CLUSTER_WIDE, Config, int16, int32, int64, string
from millstream.config.sections.authorization import Principals
from millstream.config.validators import OneOf, Range, at_least

OFF: Final = "off"
TOPIC: Final = "topic"
FILE: Final = "file"
_DESTINATIONS: Final = OneOf((OFF, TOPIC, FILE))


class AuditSettings(Config):
    """The audit log: for each kind of event `off`, `topic` (`__audit_log`) or `file`
    (`audit.log.file.path`); see [audit.md](audit.md).
    """

    audit_log_authentication_failed: str = string(
        "audit.log.authentication.failed",
        OFF,
        _DESTINATIONS,
        "Clients that failed to authenticate, by SASL or by a certificate.",
        mode=CLUSTER_WIDE,
        kafka=False,
    )
    audit_log_authentication_succeeded: str = string(
        "audit.log.authentication.succeeded",
        OFF,
        _DESTINATIONS,
        "Clients that authenticated, or authenticated again.",
        mode=CLUSTER_WIDE,
        kafka=False,
    )
    audit_log_authentication_expired: str = string(
        "audit.log.authentication.expired",
        OFF,
        _DESTINATIONS,
        "Connections that were closed because their session had expired.",
        mode=CLUSTER_WIDE,
        kafka=False,
    )
    audit_log_management_denied: str = string(
        "audit.log.management.denied",
        OFF,
        _DESTINATIONS,
        "Refused changes of topics, settings, rules, users, quotas, tokens, groups and the like.",
        mode=CLUSTER_WIDE,
        kafka=False,
    )
    audit_log_management_allowed: str = string(
        "audit.log.management.allowed",
        OFF,
        _DESTINATIONS,
        "The same, allowed; each is recorded with its result.",
        mode=CLUSTER_WIDE,
        kafka=False,
    )
    audit_log_describe_denied: str = string(
        "audit.log.describe.denied",
        OFF,
        _DESTINATIONS,
        "Refused queries: about topics, settings, rules, groups and the like.",
        mode=CLUSTER_WIDE,
        kafka=False,
    )
    audit_log_describe_allowed: str = string(
        "audit.log.describe.allowed",
        OFF,
        _DESTINATIONS,
        "The same, allowed.",
        mode=CLUSTER_WIDE,
        kafka=False,
    )
    audit_log_produce_denied: str = string(
        "audit.log.produce.denied",
        OFF,
        _DESTINATIONS,
        "Refused writes of records, and steps of transactions.",
        mode=CLUSTER_WIDE,
        kafka=False,
    )
    audit_log_produce_allowed: str = string(
        "audit.log.produce.allowed",
        OFF,
        _DESTINATIONS,
        "The same, allowed.",
        mode=CLUSTER_WIDE,
        kafka=False,
    )
    audit_log_consume_denied: str = string(
        "audit.log.consume.denied",
        OFF,
        _DESTINATIONS,
        "Refused reads of records and offsets, and steps of groups and share groups.",
        mode=CLUSTER_WIDE,
        kafka=False,
    )
    audit_log_consume_allowed: str = string(
        "audit.log.consume.allowed",
        OFF,
        _DESTINATIONS,
        "The same, allowed.",
        mode=CLUSTER_WIDE,
        kafka=False,
    )
    audit_log_interbroker_denied: str = string(
        "audit.log.interbroker.denied",
        OFF,
        _DESTINATIONS,
        "Refused requests that only brokers make (ClusterAction).",
        mode=CLUSTER_WIDE,
        kafka=False,
    )
    audit_log_interbroker_allowed: str = string(
        "audit.log.interbroker.allowed",
        OFF,
        _DESTINATIONS,
        "The same, allowed.",
        mode=CLUSTER_WIDE,
        kafka=False,
    )
    audit_log_excluded_principals: str = string(
        "audit.log.excluded.principals",
        "",
        Principals(),
        "Principals whose allowed requests are not recorded, such as `User:ANONYMOUS` or the "
        "brokers, separated by `;`. Their denied requests are recorded.",
        mode=CLUSTER_WIDE,
        kafka=False,
    )
    audit_log_repeat_interval_ms: int = int64(
        "audit.log.repeat.interval.ms",
        60_000,
        at_least(0),
        "How long in milliseconds the same allowed request of the same client on the same resource "
        "is counted instead of recorded again (kinds `describe`, `produce`, `consume` and "
        "`interbroker`); 0 records each.",
        mode=CLUSTER_WIDE,
        kafka=False,
    )
    audit_log_max_events_per_second: int = int32(
        "audit.log.max.events.per.second",
        500,
        at_least(1),
        "Average number of events of each kind that are recorded per second; how many were "
        "dropped is recorded.",
        mode=CLUSTER_WIDE,
        kafka=False,
    )
    audit_log_burst_events: int = int32(
        "audit.log.burst.events",
        2_000,
        at_least(1),
        "Events of each kind that may be recorded at once.",
        mode=CLUSTER_WIDE,
        kafka=False,
    )
    audit_log_queue_max_bytes: int = int32(
        "audit.log.queue.max.bytes",
        8_388_608,
        Range(65_536, 1_073_741_824),
        "Bytes of records that may wait for each destination; further records are dropped, and "
        "their number is recorded.",
        kafka=False,
    )
    audit_log_file_path: str | None = string(
        "audit.log.file.path",
        None,
        None,
        "The file of the destination `file`, opened again at SIGHUP.",
        kafka=False,
    )
    audit_log_topic_num_partitions: int = int32(
        "audit.log.topic.num.partitions",
        12,
        at_least(1),
        "Partitions of `__audit_log` when the broker creates it.",
        kafka=False,
    )
    audit_log_topic_replication_factor: int = int16(
        "audit.log.topic.replication.factor",
        3,
        at_least(1),
        "Replicas of `__audit_log` when the broker creates it, which it does only once there are "
        "that many brokers.",
        kafka=False,
    )
    audit_log_topic_retention_ms: int = int64(
        "audit.log.topic.retention.ms",
        604_800_000,
        at_least(-1),
        "How long `__audit_log` keeps records, in milliseconds, when the broker creates it; −1 "
        "for ever.",
        kafka=False,
    )
