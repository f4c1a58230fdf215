"""A topic's settings as the limits its batches are checked against.

Topics that share their settings share the limits: ten thousand partitions hold one object.
"""

from __future__ import annotations

from functools import lru_cache

from millstream.config.topic import TopicConfig
from millstream.records.compression import Codec
from millstream.records.limits import ProduceLimits


@lru_cache(maxsize=1024)
def produce_limits(config: TopicConfig) -> ProduceLimits:
    """Derive the limits; cached by the identity of the settings object."""
    codec = None if config.compression_type == "producer" else Codec.named(config.compression_type)
    return ProduceLimits(
        max_message_bytes=config.max_message_bytes,
        is_compacted="compact" in config.cleanup_policy,
        log_append_time=config.message_timestamp_type == "LogAppendTime",
        timestamp_before_max_ms=config.message_timestamp_before_max_ms,
        timestamp_after_max_ms=config.message_timestamp_after_max_ms,
        codec=codec,
        level=_level(config, codec),
        is_strict=config.record_validation == "strict",
    )


def _level(config: TopicConfig, codec: Codec | None) -> int | None:
    """Return the compression level that the topic sets for its codec."""
    match codec:
        case Codec.GZIP:
            return config.compression_gzip_level
        case Codec.LZ4:
            return config.compression_lz4_level
        case Codec.ZSTD:
            return config.compression_zstd_level
        case _:
            return None
