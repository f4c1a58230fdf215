"""Tables of other programs with rules that a load does not keep."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from millstream.model.errors import ConfigError
from millstream.spark.lakehouse.data_files import DataFile, file_name
from millstream.spark.lakehouse.formats.format import METADATA
from millstream.spark.lakehouse.formats.raw import RAW_COLUMNS
from millstream.spark.lakehouse.iceberg import IcebergTableFiles
from millstream.spark.lakehouse.table import Layout, Table, TableName, open_table
from millstream.spark.lakehouse.table_trial import check_properties

HEADER = {
    "type": "struct",
    "fields": [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in (("key", "string"), ("value", "binary"))
    ],
}
HEADERS = {"elementType": HEADER, "containsNull": True}
SCHEMA = pa.schema([("id", pa.int64()), ("n", pa.int64()), ("_offset", pa.int64())])
Type = str | dict[str, Any]


def column(name: str, kind: Type = "long", **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": {}, **more}


def made(
    path: Path,
    *columns: dict[str, Any],
    configuration: Mapping[str, str] | None = None,
    features: tuple[str, ...] = (),
) -> Table:
    """Make a Delta table as another program does."""
    protocol: dict[str, Any] = {"minReaderVersion": 1, "minWriterVersion": 4}
    if features:
        protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": features}
    if "columnMapping" in features:
        protocol |= {"minReaderVersion": 3, "readerFeatures": ["columnMapping"]}
    metadata = {
        "id": "5fba94ed-9794-4965-ba6e-6ee3c0d22af9",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": columns}),
        "partitionColumns": [],
        "configuration": configuration or {},
        "createdTime": 1,
    }
    log = path / "_delta_log"
    log.mkdir(parents=True)
    actions = [{"protocol": protocol}, {"metaData": metadata}]
    (log / f"{0:020}.json").write_text("\n".join(map(json.dumps, actions)))
    return open_table(TableName("delta", path))


def put(table: Table, batch: int) -> None:
    rows = pa.Table.from_pylist([{"id": None, "n": 1, "_offset": batch}], schema=SCHEMA)
    path = table.staging_directory / file_name("x", batch=batch, task=0, attempt="0" * 8)
    pq.write_table(rows, path.uri())
    file = DataFile(path=path.name, size_bytes=path.size_bytes(), rows=1)
    expected = {} if batch == 1 else {"batch": batch - 1}
    table.commit("x", {"batch": batch}, [file], expected=expected)


def columns(**of_id: Any) -> list[dict[str, Any]]:
    return [column("id", **of_id), column("n"), column("_offset", nullable=False)]


def mapped() -> list[dict[str, Any]]:
    """Return columns with other names in files."""
    prefix = "delta.columnMapping"
    return [
        {**each, "metadata": {f"{prefix}.id": n, f"{prefix}.physicalName": f"col-{n}"}}
        for n, each in enumerate(columns(), 1)
    ]


@pytest.mark.parametrize(
    ("fields", "configuration", "reason"),
    [
        (columns(), {"delta.constraints.positive": "n > 0"}, r"positive \(n > 0\)"),
        (columns(metadata={"delta.generationExpression": "n + 1"}), {}, r"id \(n \+ 1\)"),
        (columns(metadata={"delta.invariants": "{}"}), {}, "id"),
        (mapped(), {"delta.columnMapping.mode": "name"}, "files name columns otherwise"),
    ],
)
def test_rules_of_a_delta_table(
    fields: list[dict[str, Any]], configuration: dict[str, str], reason: str, tmp_path: Path
) -> None:
    features = ("columnMapping",) if "delta.columnMapping.mode" in configuration else ()
    table = made(tmp_path / "t", *fields, configuration=configuration, features=features)
    with pytest.raises(ConfigError, match=reason):
        table.create(Layout(schema=SCHEMA))
    with pytest.raises(ConfigError, match=reason):  # it got them after the load had begun
        put(table, 1)


def test_a_constraint_that_comes_later(tmp_path: Path) -> None:
    table = made(tmp_path / "t", *columns())
    table.create(Layout(schema=SCHEMA))
    put(table, 1)
    DeltaTable(str(tmp_path / "t")).alter.add_constraint({"positive": "n > 0"})
    with pytest.raises(ConfigError, match="positive"):
        put(table, 2)


def test_columns_that_are_never_null(tmp_path: Path) -> None:
    table = made(tmp_path / "t", *columns(nullable=False))
    with pytest.raises(ConfigError, match="id is NOT NULL"):
        table.create(Layout(schema=SCHEMA))
    table.create(Layout(schema=SCHEMA, filled=("id",)))


RAW = [
    *(column("key", "binary"), column("value", "binary"), column("topic", "string")),
    *(column("partition", "integer"), column("offset"), column("timestamp", "timestamp")),
    column("timestampType", "integer"),
]


def test_the_place_of_a_record_is_never_null(tmp_path: Path) -> None:
    """What a column is counts, and not its name alone: values may have a column topic, too."""
    filled = ("topic", "partition", "offset", "timestampType")
    raw = [each | {"nullable": each["name"] not in filled} for each in RAW]
    schema = pa.schema([each for each in RAW_COLUMNS if each.name != "headers"])
    raw.append(column("headers", {"type": "array", **HEADERS}))
    made(tmp_path / "raw", *raw).create(Layout(schema=RAW_COLUMNS))
    decoded = pa.schema([("topic", pa.string()), ("timestampType", pa.int32()), *METADATA])
    place = {"_topic": "string", "_partition": "integer", "_offset": "long"}
    fields = [
        column("topic", "string", nullable=False),
        column("timestampType", "integer", nullable=False),
        *(column(name, kind, nullable=False) for name, kind in place.items()),
        *(column("_timestamp", "timestamp"), column("_key", "binary")),
        column("_headers", {"type": "array", **HEADERS}),
    ]
    with pytest.raises(ConfigError, match=r": topic, timestampType is NOT NULL"):
        made(tmp_path / "decoded", *fields).create(Layout(schema=decoded))
    query = pa.schema([*(each for each in schema if each.name != "key"), ("n", pa.int64())])
    fields = [each for each in raw if each["name"] not in ("key", "headers")]
    with pytest.raises(ConfigError, match=r": timestampType is NOT NULL"):
        made(tmp_path / "query", *fields, column("n")).create(Layout(schema=query))


def test_parts_of_columns_that_are_never_null(tmp_path: Path) -> None:
    inner = column("city", "string", nullable=False)
    struct = {"type": "struct", "fields": [inner]}
    array = {"type": "array", "elementType": struct, "containsNull": True}
    numbers = {"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": False}
    names = ("place", "places", "counts")
    kinds = zip(names, (struct, array, numbers), strict=True)
    table = made(tmp_path / "t", *columns(), *(column(name, kind) for name, kind in kinds))
    with pytest.raises(ConfigError, match=r"place\.city, places\[\]\.city, counts\[\] is NOT NULL"):
        table.create(Layout(schema=SCHEMA))


def test_what_deltalake_does_not_write(tmp_path: Path) -> None:
    table = made(tmp_path / "t", *columns(), features=("rowTracking", "domainMetadata"))
    table.create(Layout(schema=SCHEMA))
    with pytest.raises(ConfigError, match="RowTracking"):
        put(table, 1)


def test_required_columns_of_iceberg(tmp_path: Path) -> None:
    table = open_table(TableName("iceberg", tmp_path / "t"))
    required = pa.schema([SCHEMA.field("id").with_nullable(False), *list(SCHEMA)[1:]])
    table.create(Layout(schema=required))
    with pytest.raises(ConfigError, match="id is NOT NULL"):
        table.create(Layout(schema=SCHEMA))


def test_parts_of_columns_that_are_required(tmp_path: Path) -> None:
    """Each commit was refused, and the load tried again and again."""
    city = pa.struct([pa.field("city", pa.string(), nullable=False)])
    numbers = pa.list_(pa.field("element", pa.int64(), nullable=False))
    counts = pa.map_(pa.string(), pa.field("value", pa.int64(), nullable=False))
    more = {"place": city, "places": pa.list_(city), "numbers": numbers, "counts": counts}
    table = open_table(TableName("iceberg", tmp_path / "t"))
    table.create(Layout(schema=pa.schema([*SCHEMA, *more.items()])))
    names = r"place\.city, places\[\]\.city, numbers\[\], counts\[\]"
    with pytest.raises(ConfigError, match=rf": {names} is NOT NULL") as told:
        table.create(Layout(schema=SCHEMA))
    assert "IDENTIFIER" not in str(told.value)


def test_identifier_fields_of_iceberg(tmp_path: Path) -> None:
    table = IcebergTableFiles(TableName("iceberg", tmp_path / "t"))
    required = pa.schema([each.with_nullable(each.name != "id") for each in SCHEMA])
    table.create(Layout(schema=required))
    with table._load().update_schema() as update:
        update.set_identifier_fields("id")
    with pytest.raises(ConfigError, match="DROP IDENTIFIER FIELDS id, and then ALTER TABLE"):
        table.create(Layout(schema=SCHEMA))


@pytest.mark.parametrize(
    ("kind", "mode", "properties", "at_fault"),
    [
        ("delta", "append", {"delta.constraints.positive": "n > 0"}, "delta.constraints.positive"),
        ("delta", "append", {"delta.columnMapping.mode": "name"}, "delta.columnMapping.mode"),
        ("delta", "append", {"delta.enableRowTracking": "true"}, "delta.enableRowTracking"),
        ("delta", "append", {"delta.appendOnly": "true"}, None),
        ("delta", "upsert", {"delta.appendOnly": "true"}, "delta.appendOnly"),
        ("delta", "upsert", {"delta.dataSkippingNumIndexedCols": "2"}, None),
        ("iceberg", "upsert", {"write.metadata.previous-versions-max": "7"}, None),
        *(
            ("iceberg", "append", {name: "x"}, name)
            for name in ("schema.name-mapping.default", "format-version")
        ),
        ("parquet", "append", {"owner": "web"}, None),
    ],
)
def test_properties_with_which_no_load_writes(
    kind: str, mode: str, properties: dict[str, str], at_fault: str | None, tmp_path: Path
) -> None:
    """The table was made, and its own first commit was refused."""
    name = TableName(kind, tmp_path / "t")
    good = {"delta": {"delta.logRetentionDuration": "interval 3 days"}}.get(kind, {"owner": "web"})
    layout = Layout(schema=SCHEMA, properties={**good, **properties})
    if at_fault is None:
        check_properties(name, layout, is_upsert=mode == "upsert")
    else:
        with pytest.raises(ConfigError) as told:
            check_properties(name, layout, is_upsert=mode == "upsert")
        assert f"{at_fault} = {properties[at_fault]}: " in str(told.value)
        assert "millstream-trial" not in str(told.value)
    assert not list(tmp_path.iterdir())
