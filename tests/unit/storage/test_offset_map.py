"""The map of keys: bounded, exact, and the same in Python and in the kernel."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.unit.storage.cleaning_support import SEED, keyed_batch

from millstream.model.errors import ConfigError, CorruptLogError
from millstream.records.batch import Batch, iter_batches
from millstream.records.cleaner_kernel import cleaner_library
from millstream.records.compaction import RetainedRecords, decompressed_records, retained_batch
from millstream.records.compression import Codec
from millstream.storage.kernel_offset_map import KernelOffsetMap
from millstream.storage.offset_map import SLOT_BYTES, PythonOffsetMap

Map = PythonOffsetMap | KernelOffsetMap
Make = Callable[[int, float], Map]


def python_map(size_bytes: int, load_factor: float) -> Map:
    return PythonOffsetMap(size_bytes, load_factor, SEED)


def kernel_map(size_bytes: int, load_factor: float) -> Map:
    library = cleaner_library()
    if library is None:
        pytest.skip("needs the kernel: python native/build.py")
    return KernelOffsetMap(library, size_bytes, load_factor, SEED)


makes = pytest.mark.parametrize("make", [python_map, kernel_map])


@makes
def test_it_is_a_dict_up_to_its_capacity(make: Make) -> None:
    chance = random.Random(8)
    found = make(1000 * SLOT_BYTES, 0.9)
    expected: dict[bytes, int] = {}
    for offset in range(5000):
        key = b"" if offset == 7 else b"%d" % chance.randrange(2000) * chance.randrange(1, 9)
        fits = found.put(key, offset)
        assert fits is (len(expected) < 900)
        if not fits:
            break
        expected[key] = offset
    assert found.count == len(expected) == 900
    assert all(found.get(key) == offset for key, offset in expected.items())
    assert found.get(b"never") == -1


@makes
def test_a_map_that_is_full_to_the_last_slot_but_one_still_answers(make: Make) -> None:
    found = make(50 * SLOT_BYTES, 1.0)
    for n in range(60):
        found.put(b"%d" % n, n)
    assert found.count == 49
    assert [found.get(b"%d" % n) for n in range(60)] == [*range(49), *[-1] * 11]


@makes
def test_too_small(make: Make) -> None:
    with pytest.raises(ConfigError):
        make(SLOT_BYTES, 0.9)


def test_the_digest_is_siphash_of_128_bits() -> None:
    library = cleaner_library()
    if library is None:
        pytest.skip("needs the kernel: python native/build.py")
    found = KernelOffsetMap(library, 10 * SLOT_BYTES, 0.9, SEED)
    digest = library.digest(found._address, b"")
    assert digest.hex() == "a3817f04ba25a8e66df67214c7550293"
    digest = library.digest(found._address, bytes(range(15)))
    assert digest.hex() == "5493e99933b0a8117e08ec0f97cfc3d9"


records = st.lists(
    st.tuples(
        st.one_of(st.none(), st.binary(max_size=3), st.binary(min_size=70, max_size=140)),
        st.one_of(st.none(), st.binary(max_size=200)),
    ),
    min_size=1,
    max_size=8,
)
batches = st.lists(
    st.tuples(
        records, st.integers(-500, 500), st.sampled_from([Codec.NONE, Codec.NONE, Codec.LZ4])
    ),
    min_size=1,
    max_size=6,
)


def filter_all(found: Map, data: memoryview, keep: list[int]) -> list[bytes]:
    """Return what is left of each batch, by whatever way it went."""
    left: list[bytes] = []
    position = 0
    while True:
        position, plain = found.filter_batches(data, position, keep)
        left += [bytes(batch.buffer) for batch in iter_batches(plain)]
        if position >= len(data):
            return left
        batch = next(iter_batches(data[position:]))
        position += batch.size
        retained = found.filter_records(
            decompressed_records(batch), batch.count, batch.base_offset, retain_tombstones=True
        )
        if retained.count == batch.count:
            left.append(bytes(batch.buffer))
        elif retained.count:
            left.append(retained_batch(batch, retained))


@settings(max_examples=examples(80))
@given(made=batches, start=st.integers(0, 20), capacity=st.sampled_from([3, 100]))
def test_both_maps_leave_the_same(
    made: list[tuple[list[tuple[bytes | None, bytes | None]], int, Codec]],
    start: int,
    capacity: int,
) -> None:
    data = bytearray()
    offset = 0
    for pairs, time, codec in made:
        times = [1000 + time * n for n in range(len(pairs))]
        batch = keyed_batch(pairs, timestamps=times, codec=codec)
        batch.assign(base_offset=offset, leader_epoch=0)
        data += batch.buffer
        offset = batch.next_offset
    outcomes = []
    for make in (python_map, kernel_map):
        found = make((capacity + 1) * 2 * SLOT_BYTES, 0.5)
        fits = True
        position = 0
        view = memoryview(data)
        while fits and position < len(view):
            position, fits = found.put_batches(view, position, start)
            if not fits or position >= len(view):
                break
            batch = Batch(view[position:])
            position += batch.size
            fits = found.put_records(
                decompressed_records(batch), batch.count, batch.base_offset, start
            )
            if fits and batch.last_offset >= start:
                found.latest_offset = max(found.latest_offset, batch.last_offset)
        outcomes.append(
            (fits, found.count, found.latest_offset, filter_all(found, view, [offset - 1]))
        )
    assert outcomes[0] == outcomes[1]
    for kept in outcomes[1][3]:
        next(iter_batches(kept)).ensure_valid()


@settings(max_examples=examples(120))
@given(data=st.data())
def test_hostile_records_are_refused_by_both(data: st.DataObject) -> None:
    raw = bytearray(decompressed_records(keyed_batch([(b"key", b"v" * 200), (b"k", None)] * 2)))
    for _ in range(data.draw(st.integers(0, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(raw)))
    hostile = bytes(raw[:cut]) if data.draw(st.booleans()) else bytes(raw)
    outcomes: list[RetainedRecords | str | tuple[int, bool]] = []
    for make in (python_map, kernel_map):
        found = make(100 * SLOT_BYTES, 0.5)
        for step in range(2):
            try:
                if step:
                    outcomes.append(found.filter_records(hostile, 4, 0, retain_tombstones=False))
                else:
                    fits = found.put_records(hostile, 4, 0, 0)
                    found.latest_offset = 3
                    outcomes.append((found.count, fits))
            except CorruptLogError:
                outcomes.append("corrupt")
    assert outcomes[:2] == outcomes[2:]
