"""The check of produced records in C: that it is there, its answers, and hostile input."""

from __future__ import annotations

from pathlib import Path

import pytest
from numpy.random import mtrand
from tests.native.sanitized import run_sanitized

from millstream.records import kernel, produce_kernel
from millstream.records.builder import BatchOptions, encode_batch
from millstream.records.compression import Codec
from millstream.records.kernel import Library, Pinned
from millstream.records.produce_kernel import (
    NOT_PLAIN,
    Produced,
    ProduceLibrary,
    ProduceRules,
    produce_library,
    why_not,
)
from millstream.records.record import Record

NOW = 1_700_000_000_000

needs_kernel = pytest.mark.skipif(produce_library() is None, reason=why_not())


def test_it_comes_with_the_kernel() -> None:
    if kernel.library() is None:
        assert produce_library() is None
        assert why_not() == kernel.describe()
    else:
        found = produce_library()
        assert found is not None, "build it again: python native/build.py"
        assert found.abi() == produce_kernel.ABI
        assert not why_not()


@needs_kernel
def test_another_version_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    produce_kernel._load.cache_clear()
    monkeypatch.setattr(produce_kernel, "ABI", produce_kernel.ABI + 1)
    assert produce_library() is None
    assert "another version" in why_not()
    monkeypatch.undo()
    produce_kernel._load.cache_clear()
    assert produce_library() is not None


@needs_kernel
def test_a_library_that_was_built_before_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    library = kernel.library()
    assert library is not None
    older = object.__new__(Library)
    older.path = Path(mtrand.__file__)  # any library without these functions
    monkeypatch.setattr(kernel, "_loaded", older)
    assert produce_library() is None
    assert "another version" in why_not()


@pytest.fixture
def library() -> ProduceLibrary:
    found = produce_library()
    if found is None:
        pytest.skip(why_not())
    return found


RULES = ProduceRules(before_ms=1000, after_ms=10)


def check(library: ProduceLibrary, batch: bytes, rules: ProduceRules = RULES) -> int:
    return library.check_batch(rules.address, library.buffers, batch, NOW)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_the_largest_timestamp_of_a_plain_batch(
    library: ProduceLibrary, kind: type[bytes | bytearray | memoryview]
) -> None:
    batch = encode_batch([Record(0, NOW + delta, None, b"v") for delta in (-5, 7, 0)])
    assert library.check_batch(RULES.address, library.buffers, kind(batch), NOW) == NOW + 7
    assert check(library, encode_batch([Record(0, -1, None, b"v")])) == -1


def test_what_gives_no_bytes_is_told(library: ProduceLibrary) -> None:
    with pytest.raises(TypeError):
        library.check_batch(RULES.address, library.buffers, "text", NOW)  # type: ignore[arg-type]


@pytest.mark.parametrize("timestamp", [NOW - 1001, NOW + 11, -2, 0])
def test_times_out_of_range(library: ProduceLibrary, timestamp: int) -> None:
    batch = encode_batch([Record(0, NOW, b"k", None), Record(0, timestamp, b"k", None)])
    assert check(library, batch) == NOT_PLAIN
    assert check(library, batch, ProduceRules(any_time=1)) == max(NOW, timestamp)
    whole = ProduceRules(before_ms=2**63 - 1, after_ms=2**63 - 1)
    assert check(library, batch, whole) == max(NOW, timestamp)


def test_the_first_broken_rule_is_told(library: ProduceLibrary) -> None:
    rules = ProduceRules(before_ms=1000, after_ms=10, needs_keys=1)
    records = [Record(0, NOW, b"k", b""), Record(0, NOW, None, b""), Record(0, 0, b"k", b"")]
    data, found = Pinned(encode_batch(records)[61:]), Produced()

    def look(position: int, first: int) -> tuple[int, int, int]:
        library.check_records(
            found,
            rules,
            data,
            position=position,
            first=first,
            count=3,
            base_timestamp=NOW,
            now_ms=NOW,
        )
        return found.fault.code, found.fault.index, found.fault.position

    code, index, position = look(0, 0)
    assert (code, index) == (20, 1)
    assert look(position + len(encode_batch(records[1:2])) - 61, 2) == (21, 2, 0)


@pytest.mark.parametrize(
    "options",
    [
        BatchOptions(codec=Codec.LZ4),
        BatchOptions(is_control=True),
        BatchOptions(log_append_time_ms=NOW),
        BatchOptions(producer_id=5, base_sequence=-1),
    ],
)
def test_what_python_has_to_decide(library: ProduceLibrary, options: BatchOptions) -> None:
    assert check(library, encode_batch([Record(0, NOW, b"k", b"v")], options)) == NOT_PLAIN


@pytest.mark.slow
def test_hostile_batches_stay_inside_their_buffers(tmp_path: Path) -> None:
    run_sanitized(tmp_path, "hostile_produce", 50_000, "produce.c", "crc32c.c")
