"""Names of data files, and which of them are orphans."""

from __future__ import annotations

from millstream.spark.lakehouse.data_files import DataFile, file_name, orphans


def test_a_name_says_whose_file_it_is() -> None:
    name = file_name("app", batch=3, task=2, attempt="0011aabb")
    assert name.startswith("millstream-")
    assert name.endswith("-0000000003-00002-0011aabb.parquet")
    assert name != file_name("other", batch=3, task=2, attempt="0011aabb")


def test_orphans_are_files_of_committed_batches_that_the_table_does_not_name() -> None:
    def name(app: str, batch: int, attempt: str) -> str:
        return f"date=2026-01-01/{file_name(app, batch=batch, task=0, attempt=attempt)}"

    named, lost = name("app", 3, "00000001"), name("app", 3, "00000002")
    on_its_way, others = name("app", 4, "00000003"), name("other", 1, "00000004")
    names = [named, lost, on_its_way, others, "date=2026-01-01/users-own.parquet"]
    assert orphans("app", batch=3, names=names, referenced={named}) == [lost]


def test_json_round_trip() -> None:
    file = DataFile(
        path="date=2026-01-01/x.parquet",
        size_bytes=10,
        rows=2,
        partition_values={"date": None},
        min_offset=4,
        max_offset=5,
    )
    assert DataFile.from_json(file.to_json()) == file
