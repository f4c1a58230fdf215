"""The audit of a table of the present: the topic is read again, and compared with the table by key.

Every record up to the ledger's offsets is decoded for its key, the newest of each key is found as
a load finds it (``merge.newest``), and each row of the table has to be of that record. Dead letters
are left out. A row whose key is in the topic no more (retention, or compaction behind the ledger's
offsets) cannot be compared; it is counted and is no fault.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.model.offsets import Offset
from millstream.model.topic import TopicPartition
from millstream.spark.lakehouse.compaction import without_rows
from millstream.spark.lakehouse.formats import FormatSpec
from millstream.spark.lakehouse.formats.changes import ChangeFormat
from millstream.spark.lakehouse.formats.debezium import CHANGE, UPSERT
from millstream.spark.lakehouse.formats.format import METADATA
from millstream.spark.lakehouse.formats.keys import REGISTERED
from millstream.spark.lakehouse.formats.raw import RAW_COLUMNS
from millstream.spark.lakehouse.intervals import OffsetSet
from millstream.spark.lakehouse.merge import Place, newest, read_as
from millstream.spark.lakehouse.table import Table
from millstream.spark.lakehouse.upserts import UpsertMode
from millstream.spark.options import SourceOptions
from millstream.spark.ranges import OffsetRange
from millstream.spark.reader import ReadRules, read_range

_SHOWN: Final = 5
_HELD_ROWS: Final = 1_000_000
"""Changes that are held until the newest of each key are found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyAudit:
    """The comparison by key; of each kind the number, and some keys to look at."""

    key: Sequence[str]
    rows: int
    """Rows of this load in the table."""
    missing: int = 0
    """Keys of the topic without a row."""
    undeleted: int = 0
    """Rows whose keys were deleted in the topic."""
    stale: int = 0
    """Rows of another record than the newest of their key."""
    doubled: int = 0
    """Keys with more than one row."""
    gone: int = 0
    """Rows whose keys are in the topic no more."""
    examples: Mapping[str, Sequence[str]]

    @property
    def is_clean(self) -> bool:
        """True if each key of the topic has the row of its newest record, and nothing else is
        there.
        """
        return not (self.missing or self.undeleted or self.stale or self.doubled)

    def sentences(self) -> list[str]:
        """Return one line for each kind of difference."""
        kinds = (
            ("missing", "keys of the topic have no row"),
            ("undeleted", "rows are there whose keys were deleted"),
            ("stale", "rows are not of the newest record of their key"),
            ("doubled", "keys have more than one row"),
        )
        return [
            f"{getattr(self, name)} {words}: {'; '.join(self.examples[name])}"
            for name, words in kinds
            if getattr(self, name)
        ]


def audit_keys(
    options: SourceOptions,
    table: Table,
    mode: UpsertMode,
    ends: Mapping[TopicPartition, tuple[Offset, Offset]],
    dead_letters: Mapping[TopicPartition, OffsetSet],
    *,
    skip: Collection[str] = (),
) -> tuple[KeyAudit, dict[TopicPartition, int]]:
    """Compare a table with its topics, of each partition from and up to the offsets of ``ends``;
    return also how many rows each partition has in the table. ``skip`` are files that cannot be
    read.
    """
    schema = table.schema()
    place = Place.of(schema)
    wanted = pa.schema([schema.field(name) for name in dict.fromkeys((*mode.key, *place.columns))])
    expected = _replay(options, mode, wanted, _spec(mode, schema), ends, dead_letters)
    held = _rows_of(table, wanted, skip)
    counts = _counts(held, place)
    own = np.zeros(held.num_rows, bool)
    for each in ends:
        of_topic = pc.equal(held[place.topic], each.topic)
        of_one = pc.and_(of_topic, pc.equal(held[place.partition], each.partition))
        own |= of_one.fill_null(False).to_numpy()
    return _compare(held.filter(pa.array(own)), expected, mode.key, place), counts


def _replay(
    options: SourceOptions,
    mode: UpsertMode,
    wanted: pa.Schema,
    spec: FormatSpec,
    ends: Mapping[TopicPartition, tuple[Offset, Offset]],
    dead_letters: Mapping[TopicPartition, OffsetSet],
) -> pa.Table:
    """Return the newest change of each key in these offsets of the topics, deletes included."""
    form = ChangeFormat(spec, mode.key)
    rules = ReadRules.of(options, fail_on_data_loss=False)
    columns = wanted.append(pa.field(CHANGE, pa.int8()))
    held = columns.empty_table()
    waiting: list[pa.Table] = []
    for topic_partition, (start, end) in ends.items():
        aside = dead_letters.get(topic_partition, OffsetSet())
        each = OffsetRange(topic_partition, start, end)
        for batch in read_range(each, rules, RAW_COLUMNS) if start < end else ():
            rows = pa.Table.from_batches([form.decode(batch).rows])
            offsets = rows[Place.of(wanted).offset].to_numpy()
            rows = rows.filter(pa.array(~_are_in(offsets, aside)))
            waiting.append(_cast(rows, columns))
            if sum(map(len, waiting)) >= max(_HELD_ROWS, len(held)):
                held, waiting = _newest([held, *waiting], mode), []
    return _newest([held, *waiting], mode)


def _newest(parts: Sequence[pa.Table], mode: UpsertMode) -> pa.Table:
    return newest(pa.concat_tables(parts), mode.key).rows


def _cast(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    return pa.Table.from_arrays([rows[e.name].cast(e.type) for e in schema], schema=schema)


def _are_in(offsets: np.ndarray, found: OffsetSet) -> np.ndarray:
    if not found.intervals:
        return np.zeros(len(offsets), bool)
    lows, highs = np.array(found.intervals, np.int64).T
    index = np.searchsorted(lows, offsets, side="right") - 1
    inside: np.ndarray = (index >= 0) & (offsets < highs[np.maximum(index, 0)])
    return inside


def _spec(mode: UpsertMode, schema: pa.Schema) -> FormatSpec:
    """Return the format with the columns that the key needs, where it can leave others out."""
    if mode.spec.options.get("key") in REGISTERED:
        mode = replace(mode, spec=replace(mode.spec, key_type=schema.field("_key").type))
    own = {*METADATA.names, *mode.spec.reserved}
    fields = [each for each in schema if each.name not in own]
    key = [each for each in fields if each.name in mode.key]
    if mode.spec.kind in ("json", "debezium") and key:
        options = {**mode.spec.options, "evolve": "false"}
        return replace(mode.spec, columns=pa.schema(key), options=options)
    return replace(mode.spec, columns=pa.schema(fields))


def _rows_of(table: Table, wanted: pa.Schema, skip: Collection[str]) -> pa.Table:
    deleted = table.deleted_rows()
    parts = [wanted.empty_table()]
    for path in table.files():
        if path not in skip:
            rows = read_as(table.data_directory / path, wanted)
            parts.append(without_rows(rows, deleted.get(path, ())))
    return pa.concat_tables(parts)


def _counts(rows: pa.Table, place: Place) -> dict[TopicPartition, int]:
    found = rows.group_by([place.topic, place.partition]).aggregate([(place.offset, "count")])
    return {
        TopicPartition(row[place.topic], row[place.partition]): row[f"{place.offset}_count"]
        for row in found.to_pylist()
        if row[place.topic] is not None
    }


def _compare(held: pa.Table, expected: pa.Table, key: Sequence[str], place: Place) -> KeyAudit:
    """Compare the rows of a table with the newest change of each key."""
    names = [f"key{number}" for number in range(len(key))]
    table = _renamed(held, key, names, place, "held")
    topic = _renamed(expected, key, names, place, "found").append_column(CHANGE, expected[CHANGE])
    both = table.join(topic, names, join_type="full outer")
    is_held, is_found = pc.is_valid(both["held2"]), pc.is_valid(both["found2"])
    is_row = pc.equal(both[CHANGE], UPSERT).fill_null(False)
    same = pc.and_(
        pc.equal(both["held0"], both["found0"]),
        pc.and_(pc.equal(both["held1"], both["found1"]), pc.equal(both["held2"], both["found2"])),
    ).fill_null(False)
    in_both = pc.and_(is_held, is_found)
    again = table.group_by(names).aggregate([([], "count_all")])
    kinds = {
        "missing": both.filter(pc.and_(is_row, pc.invert(is_held))),
        "undeleted": both.filter(pc.and_(in_both, pc.invert(is_row))),
        "stale": both.filter(pc.and_(in_both, pc.and_(is_row, pc.invert(same)))),
        "gone": both.filter(pc.and_(is_held, pc.invert(is_found))),
        "doubled": again.filter(pc.greater(again["count_all"], 1)),
    }
    return KeyAudit(
        key=key,
        rows=held.num_rows,
        missing=len(kinds["missing"]),
        undeleted=len(kinds["undeleted"]),
        stale=len(kinds["stale"]),
        doubled=len(kinds["doubled"]),
        gone=len(kinds["gone"]),
        examples={kind: _shown(rows.select(names), key) for kind, rows in kinds.items()},
    )


def _shown(rows: pa.Table, key: Sequence[str]) -> list[str]:
    return [
        ", ".join(f"{name}={value!r}" for name, value in zip(key, row.values(), strict=True))
        for row in rows.slice(0, _SHOWN).to_pylist()
    ]


def _renamed(
    rows: pa.Table, key: Sequence[str], names: Sequence[str], place: Place, prefix: str
) -> pa.Table:
    places = place.columns[:3]
    return rows.select([*key, *places]).rename_columns(
        [*names, *(f"{prefix}{number}" for number in range(3))]
    )
