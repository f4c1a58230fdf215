from __future__ import annotations

import pytest

from millstream.model.errors import ErrorCode, KafkaError
from millstream.records.batch import Batch
from millstream.records.builder import encode_batch
from millstream.records.limits import ProduceLimits
from millstream.records.record import Record
from millstream.records.validation import validate_produced

NOW = 1_700_000_000_000


def test_a_sound_batch_passes_untouched() -> None:
    data = encode_batch([Record(0, NOW, b"k", b"v")])
    batch = validate_produced(data, ProduceLimits(), version=9, now_ms=NOW)
    assert isinstance(batch, Batch)
    assert batch.buffer == data


def test_a_flipped_bit_is_a_corrupt_message() -> None:
    data = bytearray(encode_batch([Record(0, NOW, b"k", b"v")]))
    data[-1] ^= 1
    with pytest.raises(KafkaError) as caught:
        validate_produced(data, ProduceLimits(), version=9, now_ms=NOW)
    assert caught.value.error is ErrorCode.CORRUPT_MESSAGE
