"""A topic as an asset that is a table, with its audit as an asset check (Dagster).

Needs `pip install 'millstream[lake]' dagster`. `dagster dev -f clicks.py` shows it. The rows, the
bytes and the rejected records of each round become the asset's metadata.
"""

from __future__ import annotations

import os

import dagster as dg

from millstream.spark import audit, load
from millstream.spark.lakehouse.batches import BatchReport
from millstream.spark.lakehouse.maintain import maintain
from millstream.spark.lakehouse.settings import LoadSettings
from millstream.spark.lakehouse.table import open_table, parse_table_name


def settings() -> LoadSettings:
    return LoadSettings(
        source={
            "kafka.bootstrap.servers": os.environ.get("BOOTSTRAP", "localhost:9092"),
            "subscribe": os.environ.get("TOPIC", "clicks"),
        },
        table=parse_table_name(os.environ.get("TABLE", "delta:/srv/lake/clicks")),
        format="json",
    )


@dg.asset(retry_policy=dg.RetryPolicy(max_retries=3, delay=60))
def clicks() -> dg.MaterializeResult:
    """Load what is new; a round that is killed goes on where the table ends."""
    reports: list[BatchReport] = []
    load(settings(), on_batch=reports.append)
    return dg.MaterializeResult(
        metadata={
            "rows": sum(each.rows for each in reports),
            "bytes": sum(each.written_bytes for each in reports),
            "dead letters": sum(each.dead_letters for each in reports),
        }
    )


@dg.asset_check(asset=clicks)
def holds_its_topic() -> dg.AssetCheckResult:
    """Compare the table with the topic."""
    found = audit(settings())
    return dg.AssetCheckResult(passed=found.is_clean, metadata={"rows": found.rows})


@dg.op
def upkeep() -> None:
    """Join small files, forget states older than a week."""
    of = settings()
    maintain(open_table(of.table), of.load_id, target_bytes=of.file_bytes)


@dg.job
def clicks_upkeep() -> None:
    upkeep()


defs = dg.Definitions(
    assets=[clicks],
    asset_checks=[holds_its_topic],
    jobs=[clicks_upkeep],
    schedules=[
        dg.ScheduleDefinition(
            name="every_quarter_of_an_hour",
            target=dg.AssetSelection.assets(clicks),
            cron_schedule="*/15 * * * *",
        ),
        dg.ScheduleDefinition(name="every_night", job=clicks_upkeep, cron_schedule="40 4 * * *"),
    ],
)
