"""Columns that the kernel makes of JSON, Avro and Protobuf are those that Python makes, whatever
stands in the values: cut off at each byte, with single bits changed, with lengths that lie, with
thousands of fields.

The same input each time. ``python native/sanitize.py`` runs this with a kernel that watches every
read and write, with more rounds and from another seed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pytest
from google.protobuf.message_factory import GetMessageClass
from tests.property.random_avro import AvroSource
from tests.property.random_json import COLUMNS, NUMBERS, TEXTS, WRONG_NUMBERS, some_object
from tests.property.test_protobuf_kernel import ONE, Kinds, Schemas, described, fill, of, ordered

from millstream.model.errors import ConfigError
from millstream.records import kernel
from millstream.records.json_columns_kernel import JsonColumns, json_columns_library
from millstream.records.json_kernel import LINE, FieldReader
from millstream.records.kernel import Library
from millstream.spark.lakehouse.formats import FormatSpec, make_format
from millstream.spark.lakehouse.formats.avro import AvroFormat
from millstream.spark.lakehouse.formats.protobuf import ProtobufFormat, read_descriptor

ROUNDS: Final = max(int(os.environ.get("MILLSTREAM_FUZZ_ROUNDS", "30")) // 10, 1)
FIRST_SEED: Final = int(os.environ.get("MILLSTREAM_FUZZ_SEED", "0"))
MOST_MUTANTS: Final = 40

LYING: Final = (
    *(b"\xff" * 9 + b"\x01", b"\xfe" + b"\xff" * 8 + b"\x01", b"\x80" * 9 + b"\x01"),
    *(b"\xff\xff\xff\xff\x0f", b"\xfe\xff\xff\xff\x0f", b"\x80\x80\x80\x80\x08", b"\xff\xff\x03"),
    *(b"\x80" * 12, b"\x80\x00", b"\x81\x80\x80\x80\x00", b"\x7f", b"\x01", b"\x00"),
)
"""Numbers at their ends, too long, and longer than they have to be."""

seeds = pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + 4))


@pytest.fixture(autouse=True)
def _library(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use the kernel that the environment names (``native/sanitize.py``), or the installed one."""
    path = os.environ.get("MILLSTREAM_FUZZ_KERNEL")
    if path:
        monkeypatch.setattr(kernel, "_loaded", Library(Path(path)))
    elif kernel.library() is None:
        pytest.skip(kernel.describe())


def mutants(random: Random, data: bytes) -> Iterator[bytes]:
    """Yield a value as it is, cut off, with a bit changed, with numbers that lie."""
    yield data
    cuts = range(len(data))
    yield from (data[:end] for end in random.sample(cuts, min(len(cuts), MOST_MUTANTS)))
    bits = range(8 * len(data))
    for bit in random.sample(bits, min(len(bits), MOST_MUTANTS)):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        yield bytes(changed)
    for number in LYING:
        place = random.randint(0, len(data))
        yield data[:place] + number + data[place + random.randint(0, 2) :]
    yield data + data
    yield data + b"\0"


def agree(spec: FormatSpec, values: Sequence[bytes | None]) -> int:
    """Read values with the kernel and without; return how many are rows."""
    batch = of([b"\0", *values]).slice(1)
    form = make_format(spec)
    assert isinstance(form, AvroFormat | ProtobufFormat)
    found = form.decode(batch)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel, "_loaded", None)
        expected = make_format(spec).decode(batch)
    found.rows.validate(full=True)
    # Row by row, as text: a NaN is no other NaN, and a map of Protobuf has no order.
    pairs = zip(found.rows.to_pylist(), expected.rows.to_pylist(), strict=True)
    for row, plain in pairs:
        assert str(ordered(row)) == str(ordered(plain))
    assert found.rows.schema == expected.rows.schema
    assert list(found.rejected) == list(expected.rejected)
    return found.rows.num_rows


def with_mutants(random: Random, make: Callable[[], bytes]) -> list[bytes | None]:
    values: list[bytes | None] = [None]
    for _ in range(3):
        values += mutants(random, make())
    random.shuffle(values)
    return values


@seeds
def test_avro(seed: int) -> None:
    random = Random(seed)
    for number in range(ROUNDS):
        source = AvroSource(Random(1_000 * seed + number))
        values = with_mutants(random, source.datum)
        try:
            agree(source.spec(), values)
        except ConfigError:  # all that it had is null
            continue


@seeds
def test_protobuf(seed: int) -> None:
    random = Random(seed)
    for number in range(ROUNDS):
        rng = Random(1_000 * seed + number)
        schemas = Schemas(rng)
        kind = GetMessageClass(read_descriptor(schemas.spec.definition, f"p.{schemas.name}"))

        def make(kind: Any = kind, rng: Random = rng) -> bytes:
            message = kind()
            fill(rng, message)
            data: bytes = message.SerializePartialToString()
            return data

        agree(schemas.spec, with_mutants(random, make))


def shown(rows: pa.RecordBatch | pa.Table) -> str:
    """Times as numbers: a mutant may be one that Python's ``datetime`` does not have."""
    columns = (
        each.cast(pa.int64()) if pa.types.is_timestamp(each.type) else each for each in rows.columns
    )
    return str([each.to_pylist() for each in columns])


@pytest.mark.slow
@seeds
def test_json(seed: int) -> None:
    """With new columns where fields need them, and without."""
    random = Random(seed)
    for _ in range(4 * ROUNDS):
        values: list[bytes | None] = [None]
        for _ in range(6):
            value = some_object(random)
            values += random.sample(list(mutants(random, value)), 5)
        options = {"evolve": random.choice(["true", "false"])}
        fixed = frozenset(random.sample(COLUMNS.names, random.choice([0, 0, 2])))
        spec = FormatSpec(kind="json", columns=COLUMNS, options=options, fixed=fixed)
        batch = of(values)
        found = make_format(spec).decode(batch)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(kernel, "_loaded", None)
            expected = make_format(spec).decode(batch)
        found.rows.validate(full=True)
        assert set(found.wider or ()) == set(expected.wider or ())
        if found.wider is None:  # else the driver has all of it read again
            assert shown(found.rows) == shown(expected.rows)
            assert list(found.rejected) == list(expected.rejected)


def fitted(value: Any, kind: pa.DataType) -> Any:
    """Return what a column holds of a value of Python's own reader; None is of any other kind."""
    if pa.types.is_struct(kind) and isinstance(value, dict):
        return {each.name: fitted(value.get(each.name), each.type) for each in kind}
    if pa.types.is_list(kind) and isinstance(value, list):
        return [fitted(each, kind.value_type) for each in value]
    if pa.types.is_floating(kind) and isinstance(value, int | float):
        return float(value)
    return value


NO_TIMES: Final = pa.schema([each for each in COLUMNS if "t" not in each.name and each.name != "o"])


@seeds
def test_json_objects_are_what_pythons_own_reader_makes_of_them(seed: int) -> None:
    """And what fits is not left to it."""
    random, library = Random(seed), json_columns_library()
    assert library is not None
    for _ in range(ROUNDS):
        sound = [some_object(random, is_sound=True) for _ in range(10)]
        broken = [each for value in sound[:2] for each in mutants(random, value)]
        values = [*sound, *broken, *(some_object(random) for _ in range(20))]
        reader = JsonColumns(library, NO_TIMES, skip_unknown=True)
        found = reader.read(pa.array([b"", *values]).slice(1))
        rows = pa.RecordBatch.from_arrays(found.arrays, schema=NO_TIMES)
        rows.validate(full=True)
        read = np.setdiff1d(np.arange(len(values)), found.left).tolist()
        for row, number in zip(rows.to_pylist(), read, strict=True):
            expected = fitted(json.loads(values[number]), pa.struct(list(NO_TIMES)))
            assert str(row) == str(expected), values[number]


@pytest.mark.parametrize("number", [*NUMBERS, *WRONG_NUMBERS])
@pytest.mark.parametrize("behind", ["", " ", "\n", "x", "0" * 20])
def test_every_number_is_the_one_that_python_reads(number: str, behind: str) -> None:
    library = json_columns_library()
    assert library is not None
    value = f'{{"x":{number}{behind}}}'.encode()
    columns = [pa.schema([("x", kind)]) for kind in (pa.float64(), pa.int64(), pa.int32())]
    for schema in columns:
        found = JsonColumns(library, schema, skip_unknown=False).read(pa.array([value]))
        if not len(found.left):
            (read,) = found.arrays[0].to_pylist()
            assert str(read) == str(type(read)(json.loads(value)["x"]))
            assert type(read) is float or type(json.loads(value)["x"]) is int
    unknown = JsonColumns(library, pa.schema([("y", pa.int32())]), skip_unknown=True)
    left = unknown.read(pa.array([value])).left
    try:
        json.loads(value)
    except ValueError:
        assert len(left)
    else:
        assert not len(left)


@pytest.mark.parametrize("text", TEXTS)
def test_every_text_is_the_one_that_python_reads(text: str) -> None:
    library = json_columns_library()
    assert library is not None
    value = f'{{"s":{text}}}'.encode()
    found = JsonColumns(library, pa.schema([("s", pa.string())]), skip_unknown=False)
    read = found.read(pa.array([value]))
    if len(read.left):
        with pytest.raises(ValueError, match=r"escape|surrogates not allowed"):
            json.loads(value)["s"].encode()
    else:
        assert read.arrays[0].to_pylist() == [json.loads(value)["s"]]


@seeds
def test_the_texts_of_fields(seed: int) -> None:
    """``ms_json_fields``: what it takes for an object is one, and its texts are those values."""
    random, library = Random(seed), kernel.library()
    assert library is not None
    names = ["n", "s", "o", "ll", "", "ü"]
    for _ in range(ROUNDS):
        values: list[bytes | None] = [None, *(some_object(random) for _ in range(20))]
        values += mutants(random, some_object(random))
        found, states = FieldReader(library, names).read(pa.array([b"", *values]).slice(1))
        rows = zip(*(found[name].to_pylist() for name in names), strict=True)
        for value, state, texts in zip(values, states, rows, strict=True):
            if state != LINE or value is None:
                assert texts == (None,) * len(names)
                continue
            whole = json.loads(value)
            for name, text in zip(names, texts, strict=True):
                assert (text is None) == (name not in whole), (value, name)
                assert text is None or str(json.loads(text)) == str(whole[name])


@pytest.mark.slow
@pytest.mark.parametrize("count", [100, 3_000])
def test_thousands_of_columns(count: int) -> None:
    random = Random(count)
    fields = [{"name": f"f{n}", "type": random.choice(["int", "string"])} for n in range(count)]
    avro = json.dumps({"type": "record", "name": "R", "fields": fields}).encode()
    datum = bytes(count)
    assert agree(FormatSpec(kind="avro", definition=avro), [datum, datum[1:], datum + b"\0"]) == 1
    kinds = (Kinds.TYPE_INT32, Kinds.TYPE_STRING)
    message = described([(f"f{n}", n + 1, random.choice(kinds), ONE) for n in range(count)])
    kind = GetMessageClass(read_descriptor(message.definition, "p.R"))
    full = kind()
    for field in full.DESCRIPTOR.fields:
        setattr(full, field.name, "x" if field.type == Kinds.TYPE_STRING else -1)
    data = full.SerializeToString()
    assert agree(message, [data, b"", data[:-1]]) == 2
    columns = pa.schema([(f"f{n}", pa.int64()) for n in range(count)])
    value = {f"f{n}": n for n in reversed(range(count))}
    library = json_columns_library()
    assert library is not None
    reader = JsonColumns(library, columns, skip_unknown=False)
    found = reader.read(pa.array([json.dumps(value).encode(), b"{}", None]))
    assert found.left.tolist() == []
    assert [each.to_pylist() for each in found.arrays] == [[n, None, None] for n in range(count)]


def nested(levels: int) -> dict[str, Any]:
    kind: Any = "int"
    for level in range(levels):
        fields = [{"name": "a", "type": kind}]
        kind = {"type": "record", "name": f"R{level}", "fields": fields}
    return {"type": "record", "name": "R", "fields": [{"name": "a", "type": kind}]}


@pytest.mark.parametrize("levels", [0, 5, 39, 40, 60])
def test_types_inside_of_each_other(levels: int) -> None:
    spec = FormatSpec(kind="avro", definition=json.dumps(nested(levels)).encode())
    form = make_format(spec)
    assert isinstance(form, AvroFormat)
    assert form.is_compiled == (levels < 40)
    assert agree(spec, [b"\2", b"", b"\2\2", None]) == 2
    inner: pa.DataType = pa.int64()
    for _ in range(levels):
        inner = pa.struct([("a", inner)])
    library = json_columns_library()
    assert library is not None
    value = b'{"a":' * (levels + 1) + b"1" + b"}" * (levels + 1)
    schema = pa.schema([("a", inner)])
    if levels >= 40:
        with pytest.raises(TypeError):
            JsonColumns(library, schema, skip_unknown=True)
        return
    found = JsonColumns(library, schema, skip_unknown=True).read(pa.array([value, value[:-1]]))
    assert found.left.tolist() == [1]


@pytest.mark.parametrize("values", [[], [None], [None] * 100, [b""], [b""] * 100])
def test_nothing_at_all(values: list[bytes | None]) -> None:
    source = AvroSource(Random(3))
    agree(FormatSpec(kind="avro", definition=json.dumps(source.schema).encode()), values)
    agree(described([("a", 1, Kinds.TYPE_STRING, ONE)]), values)
    library = json_columns_library()
    assert library is not None
    reader = JsonColumns(library, COLUMNS, skip_unknown=True)
    found = reader.read(pa.array(values, pa.binary()))
    assert found.left.tolist() == [row for row, value in enumerate(values) if value is not None]


@seeds
def test_offsets_that_do_not_fit_are_told(seed: int) -> None:
    """A column of which nobody has checked the offsets; all three readers walk it in one loop."""
    random, library = Random(seed), json_columns_library()
    assert library is not None
    reader = JsonColumns(library, COLUMNS, skip_unknown=True)
    data = b'{"n":1}' * 5
    for _ in range(20 * ROUNDS):
        wide = random.random() < 0.5
        bounds = np.array([0, 7, 14, 21, 28, 35], np.int64 if wide else np.int32)
        kind = pa.large_binary() if wide else pa.binary()
        buffers = [None, pa.py_buffer(bounds), pa.py_buffer(data)]
        column = pa.Array.from_buffers(kind, 5, buffers, 0)
        # Behind the back of Arrow, which looks at the first and the last one.
        for place in random.sample(range(1, 5), 2):
            lies = [-1, 0, 35, 36, 2**31 - 1, -(2**31), 2**62 if wide else 40]
            bounds[place] = random.choice(lies)
        if all(0 <= start <= stop <= 35 for start, stop in pairwise(bounds.tolist())):
            reader.read(column)
        else:
            with pytest.raises(ValueError, match="does not fit its data"):
                reader.read(column)
