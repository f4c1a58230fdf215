from __future__ import annotations

import pytest

from millstream.config.topic import TopicConfig
from millstream.records.compression import Codec
from millstream.runtime.replicas.produce_limits import produce_limits


@pytest.mark.parametrize(
    ("compression_type", "codec", "level"),
    [
        ("producer", None, None),
        ("uncompressed", Codec.NONE, None),
        ("snappy", Codec.SNAPPY, None),
        ("gzip", Codec.GZIP, 2),
        ("lz4", Codec.LZ4, 11),
        ("zstd", Codec.ZSTD, -7),
    ],
)
def test_codec_and_level_of_a_topic(
    compression_type: str, codec: Codec | None, level: int | None
) -> None:
    config = TopicConfig(
        {
            "compression.type": compression_type,
            "compression.gzip.level": "2",
            "compression.lz4.level": "11",
            "compression.zstd.level": "-7",
        }
    )
    limits = produce_limits(config)
    assert (limits.codec, limits.level) == (codec, level)


@pytest.mark.parametrize(("validation", "looks_inside"), [("relaxed", False), ("strict", True)])
def test_record_validation_of_a_topic(validation: str, looks_inside: bool) -> None:
    limits = produce_limits(TopicConfig({"record.validation": validation}))
    assert (limits.is_strict, limits.looks_inside) == (looks_inside, looks_inside)
