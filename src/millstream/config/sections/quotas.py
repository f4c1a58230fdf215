"""Quotas of clients: over which time usage is taken, and defaults."""

from __future__ import annotations

from typing import Final

from millstream.config.definition import Config, int32, int64
from millstream.config.validators import at_least

MAX_LONG: Final = 2**63 - 1


class QuotasSettings(Config):
    """Quotas themselves are set for users, client ids and addresses (AlterClientQuotas)."""

    quota_window_num: int = int32(
        "quota.window.num",
        11,
        at_least(1),
        "Number of windows over which the usage of clients is averaged.",
    )
    quota_window_size_seconds: int = int32(
        "quota.window.size.seconds",
        1,
        at_least(1),
        "Length of such a window in seconds.",
    )
    controller_quota_window_num: int = int32(
        "controller.quota.window.num",
        11,
        at_least(1),
        "Number of windows whose quota of controller mutations may be used at once.",
    )
    controller_quota_window_size_seconds: int = int32(
        "controller.quota.window.size.seconds",
        1,
        at_least(1),
        "Length of such a window in seconds.",
    )
    quota_producer_default: int = int64(
        "quota.producer.default",
        MAX_LONG,
        at_least(1),
        "Bytes per second for a producer without a quota for its user or client id; Apache Kafka "
        "had this setting until 4.0.",
        kafka=False,
    )
    quota_consumer_default: int = int64(
        "quota.consumer.default",
        MAX_LONG,
        at_least(1),
        "The same for a consumer.",
        kafka=False,
    )
