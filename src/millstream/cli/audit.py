"""`millstream audit`: does a table hold its topic, each record once?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from millstream.cli.arguments import DEFAULT_BOOTSTRAP, AsJson, Bootstrap
from millstream.cli.client_options import registry_settings
from millstream.cli.failures import FAILED
from millstream.cli.output import is_for_a_person, print_json, print_note, print_rows
from millstream.cli.table_arguments import (
    AppId,
    SchemaRegistry,
    SourceOptions,
    StorageOptions,
    TableArgument,
    TopicArgument,
    existing_table,
    load_id,
    source_options,
    tables_of,
)
from millstream.spark.lakehouse.table import TOPIC_FIELD

if TYPE_CHECKING:
    from millstream.spark.lakehouse.audit import Audit


def audit(
    topic: TopicArgument,
    table: TableArgument,
    app_id: AppId = "",
    schema_registry: SchemaRegistry = None,
    option: SourceOptions = None,
    storage_option: StorageOptions = None,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Compare a table with its topic: ranges, gaps, duplicates, and offsets without a record.

    With {topic} in the table's name, the table of each topic is compared. The exit code is 0 if
    every table holds each record up to its offsets exactly once, and 1 otherwise.
    """
    from millstream.spark.lakehouse.audit import audit as run_audit
    from millstream.spark.lakehouse.audit import sentences
    from millstream.spark.options import load_source, parse_options

    audits = []
    for each, name in tables_of(topic, table):
        source = load_source(source_options(bootstrap, each, option))
        options = parse_options(source, streaming=True)
        of_load = existing_table(name, storage_option), load_id(each, app_id)
        found = run_audit(options, *of_load, registry_settings(schema_registry))
        audits.append((found, sentences(found)))
    if as_json:
        found_all = [_json(found, problems) for found, problems in audits]
        print_json(found_all if TOPIC_FIELD in table else found_all[0])
    else:
        for found, problems in audits:
            _print(found, problems)
    if any(problems for _, problems in audits):
        raise typer.Exit(FAILED)


def _print(found: Audit, problems: list[str]) -> None:
    from millstream.spark.lakehouse.intervals import size

    print_rows(
        [
            {
                "table": found.table,
                "topic": each.topic_partition.topic,
                "partition": each.topic_partition.partition,
                "start": each.start,
                "end": each.end,
                "rows": each.rows,
                "dead_letters": each.dead_letters,
                "empty": each.empty_offsets,
                "gaps": size(each.missing) + size(each.unverifiable),
                "doubles": size(each.doubled),
            }
            for each in found.partitions
        ],
        ({} if is_for_a_person() else {"table": "TABLE"})
        | {
            "topic": "TOPIC",
            "partition": "PARTITION",
            "start": "FROM",
            "end": "TO",
            "rows": "ROWS",
            "dead_letters": "DEAD LETTERS",
            "empty": "NO RECORD",
            "gaps": "GAPS",
            "doubles": "DOUBLES",
        },
        title=found.table,
    )
    for line in problems:
        print_note(line)
    if found.other_rows:
        print_note(
            f"{found.other_rows:,} rows of other loads or writers in the table were not looked at"
        )
    if found.keys is not None and found.keys.gone:
        print_note(
            f"{found.keys.gone:,} rows have keys that are in the topic no more; not compared"
        )
    if not problems and found.keys is not None:
        key = ", ".join(found.keys.key)
        told = f"{found.rows:,} rows, one for each {key}, each its newest record"
        print_note(f"{found.table}: {told}")
    elif not problems:
        print_note(f"{found.table}: contiguous, {found.rows:,} rows, 0 gaps, 0 duplicates")


def _json(found: Audit, problems: list[str]) -> dict[str, object]:
    return {
        "table": found.table,
        "clean": found.is_clean,
        "rows": found.rows,
        "problems": problems,
        "keys": None
        if found.keys is None
        else {
            "key": list(found.keys.key),
            "missing": found.keys.missing,
            "undeleted": found.keys.undeleted,
            "stale": found.keys.stale,
            "doubled": found.keys.doubled,
            "gone": found.keys.gone,
        },
        "rowsOfOtherLoads": found.other_rows,
        "partitions": [
            {
                "topic": each.topic_partition.topic,
                "partition": each.topic_partition.partition,
                "start": each.start,
                "end": each.end,
                "rows": each.rows,
                "deadLetters": each.dead_letters,
                "offsetsWithoutRecord": each.empty_offsets,
                "gaps": [list(interval) for interval in (*each.missing, *each.unverifiable)],
                "duplicates": [list(interval) for interval in each.doubled],
                "beyond": [list(interval) for interval in each.beyond],
            }
            for each in found.partitions
        ],
    }
