"""`millstream load --plan`: what a load would do, as text or JSON."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import typer

from millstream.cli.failures import FAILED, complain
from millstream.cli.output import counted, is_for_a_person, print_cells, print_json, print_rows

if TYPE_CHECKING:
    from millstream.spark.lakehouse.load_plan import LoadPlan
    from millstream.spark.lakehouse.settings import LoadSettings


def show_plan(settings: LoadSettings, *, as_json: bool) -> None:
    """Print what the load would do; exit code 1 if it would be refused. Nothing is written."""
    from millstream.spark.lakehouse.load_plan import plan_load, plan_loads

    settings = replace(settings, follow=False)
    plans = plan_loads(settings) if settings.table.is_per_topic else [plan_load(settings)]
    if as_json:
        values = [_value(plan) for plan in plans]
        print_json(values if settings.table.is_per_topic else values[0])
    else:
        for plan in plans:
            _print(plan)
    refused = [plan for plan in plans if plan.refusal is not None]
    for plan in refused:
        complain(f"{plan.table}: {plan.refusal}")
    if refused:
        raise typer.Exit(FAILED)


def _value(plan: LoadPlan) -> dict[str, Any]:
    return {
        "table": str(plan.table),
        "load": plan.load_id,
        "create": plan.is_new,
        "columns": [{"name": each.name, "type": str(each.type)} for each in plan.columns],
        "added": [{"name": each.name, "type": str(each.type)} for each in plan.added],
        "widened": [
            {"name": each.name, "from": str(each.before), "to": str(each.after)}
            for each in plan.widened
        ],
        "partitions": [
            {"topic": each.topic, "partition": each.partition, "from": start, "to": end}
            for each, (start, end) in sorted(plan.ranges.items())
        ],
        "decoded": plan.looked_at,
        "rejected": plan.rejected,
        "reasons": dict(plan.reasons),
        "waitsForRecords": plan.is_waiting,
        "refused": plan.refusal,
    }


def _print(plan: LoadPlan) -> None:
    from millstream.spark.lakehouse.reject_limit import in_words

    if not is_for_a_person():
        _print_cells(plan)
        return
    pending = sum(max(end - start, 0) for start, end in plan.ranges.values())
    what = "would be created" if plan.is_new else "is there"
    print(f"{plan.table} {what}; {plan.load_id} would read {counted(pending, 'offset')}")
    if plan.is_waiting:
        print("its columns wait for the first record")
    changes = _changes(plan)
    if changes:
        print_rows(
            [{"change": change, "name": name, "type": kind} for change, name, kind in changes],
            {"change": "CHANGE", "name": "COLUMN", "type": "TYPE"},
        )
    elif plan.refusal is None and not plan.is_waiting:
        print("no column changes")
    if plan.ranges:
        print_rows(
            [
                {"topic": each.topic, "partition": each.partition, "from": start, "to": end}
                for each, (start, end) in sorted(plan.ranges.items())
            ],
            {"topic": "TOPIC", "partition": "PARTITION", "from": "FROM", "to": "TO"},
        )
    if plan.rejected:
        print(
            f"of {counted(plan.looked_at, 'record')} decoded, {plan.rejected:,} would be dead "
            f"letters: {in_words(plan.reasons)}"
        )
    elif plan.looked_at:
        print(f"{counted(plan.looked_at, 'record')} decoded, no dead letters")


def _changes(plan: LoadPlan) -> list[tuple[str, str, str]]:
    """Return what becomes of columns: what, name and type."""
    if plan.is_new:
        return [("create", each.name, str(each.type)) for each in plan.columns]
    added = [("add", each.name, str(each.type)) for each in plan.added]
    widened = [("widen", each.name, f"{each.before} → {each.after}") for each in plan.widened]
    return added + widened


def _print_cells(plan: LoadPlan) -> None:
    """Print rows for a pipe: the table, what the row is about, and what it says of it."""
    table = str(plan.table)
    for change in _changes(plan):
        print_cells([table, "column", *change])
    for each, (start, end) in sorted(plan.ranges.items()):
        print_cells([table, "partition", each.topic, each.partition, start, end])
    for reason, count in plan.reasons.items():
        print_cells([table, "dead letters", reason, count])
