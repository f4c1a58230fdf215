"""The kernel finds the columns of a JSON object's fields by their names: the right ones, in any
order, and in few looks at names however many there are of both.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Final

import pyarrow as pa
import pytest

from millstream.records import kernel
from millstream.records.json_columns_kernel import JsonColumns, json_columns_library
from millstream.records.json_kernel import INTEGER, LINE, OTHER_KIND, LineMaker
from millstream.records.kernel import Library

MOST_LOOKS: Final = 14
"""For each name, with up to 4,096 columns: the expected one, then each half of what is left."""

SIZES: Final = pytest.mark.parametrize(("columns", "names"), [(500, 500), (4_000, 4_000), (1, 900)])


@pytest.fixture(scope="module", autouse=True)
def library() -> Iterator[Library]:
    """Use the kernel that the environment names (``native/sanitize.py``), or the installed one."""
    path = os.environ.get("MILLSTREAM_FUZZ_KERNEL")
    with pytest.MonkeyPatch.context() as patch:
        if path:
            patch.setattr(kernel, "_loaded", Library(Path(path)))
        found = kernel.library()
        if found is None:
            pytest.skip(kernel.describe())
        yield found


def reader(columns: pa.Schema) -> JsonColumns:
    library = json_columns_library()
    assert library is not None
    return JsonColumns(library, columns, skip_unknown=True)


def numbered(count: int, prefix: str = "c") -> pa.Schema:
    return pa.schema([(f"{prefix}{n}", pa.int64()) for n in range(count)])


@SIZES
def test_names_that_no_column_has_take_a_few_looks_each(
    library: Library, columns: int, names: int
) -> None:
    value = json.dumps({f"u{n}": n for n in range(names)}).encode()
    found = reader(numbered(columns)).read(pa.array([value]))
    assert not len(found.left)
    assert found.compared <= MOST_LOOKS * names
    kinds = {f"c{n}": INTEGER for n in range(columns)}
    lines = LineMaker(library, kinds, most_deep=50).lines(pa.array([value]))
    assert lines.states.tolist() == [LINE]
    assert lines.compared <= MOST_LOOKS * names


@SIZES
def test_names_inside_of_an_object_take_as_few(columns: int, names: int) -> None:
    inner = pa.struct(list(numbered(columns)))
    value = json.dumps({"o": {f"u{n}": n for n in range(names)}}).encode()
    found = reader(pa.schema([("o", inner)])).read(pa.array([value]))
    assert not len(found.left)
    assert found.compared <= MOST_LOOKS * (names + 1)


def test_fields_in_any_order_take_a_few_looks_each_and_go_to_their_columns() -> None:
    random, count = Random(5), 3_000
    names = [f"c{n}" for n in range(count)]
    rows = []
    for _ in range(3):
        random.shuffle(names)
        rows.append({name: random.randrange(9) for name in names[: random.randint(1, count)]})
    found = reader(numbered(count)).read(pa.array([json.dumps(row).encode() for row in rows]))
    assert not len(found.left)
    assert found.compared <= MOST_LOOKS * sum(map(len, rows))
    for name, column in zip(numbered(count).names, found.arrays, strict=True):
        assert column.to_pylist() == [row.get(name) for row in rows]


def test_names_of_one_size_of_others_beginnings_and_of_none_are_told_apart() -> None:
    names = ["", "a", "b", "ab", "ba", "abc", "abcdefgh", "abcdefgi", "abcdefghi", "ü", "é", "\0"]
    names += ["x" * 300, "x" * 299 + "y", 'q"', "b\\", "n" * 7, "n" * 8, "n" * 9, "n" * 16]
    schema = pa.schema([(name, pa.int64()) for name in names])
    random = Random(7)
    for _ in range(50):
        chosen = random.sample(names, random.randint(0, len(names)))
        row = {name: random.randrange(9) for name in [*chosen, "abcdefg", "ab ", "N", "xx"]}
        value = json.dumps(row, ensure_ascii=False)
        found = reader(schema).read(pa.array([value.encode()]))
        # Names that are written with an escape are left to Python.
        assert len(found.left) == int("\\" in value)
        if not len(found.left):
            read = [column.to_pylist()[0] for column in found.arrays]
            assert read == [row.get(name) for name in names]


def test_a_name_with_a_quote_is_no_end_of_another_one() -> None:
    schema = pa.schema([('a":1,"b', pa.int64()), ("c", pa.int64())])
    found = reader(schema).read(pa.array([b'{"a":1,"b":2,"c":3}', b'{"a\\":1,\\"b":2}']))
    assert found.left.tolist() == [1]
    assert [each.to_pylist() for each in found.arrays] == [[None], [3]]


def test_the_kind_of_a_field_is_that_of_its_column(library: Library) -> None:
    names = [f"c{n}" for n in range(100)]
    maker = LineMaker(library, dict.fromkeys(names, INTEGER), most_deep=50)
    random = Random(9)
    for _ in range(20):
        random.shuffle(names)
        row: dict[str, object] = dict.fromkeys([*names, "x", "d1"], 1)
        sound, row["x"] = json.dumps(row), "text"
        other = json.dumps({**row, random.choice(names): "text"})
        values = pa.array([sound.encode(), json.dumps(row).encode(), other.encode()])
        assert maker.lines(values).states.tolist() == [LINE, LINE, OTHER_KIND]
