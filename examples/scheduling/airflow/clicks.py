"""A topic into a table every quarter of an hour, and its audit; upkeep once a day (Apache Airflow).

Workers need `pip install 'millstream[lake]'`. A load that is killed or runs twice does no harm, so
retries are safe; max_active_runs=1 keeps a round from starting while the one before still runs.
With the OpenLineage provider the load's own events become children of the task's run.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from airflow import DAG

try:
    from airflow.providers.standard.operators.bash import BashOperator  # Airflow 3
except ImportError:
    from airflow.operators.bash import BashOperator

SETTINGS = {
    "BOOTSTRAP": "localhost:9092",
    "TOPIC": "clicks",
    "TABLE": "delta:/srv/lake/clicks",
}
STEPS = {
    "load": "millstream load $TOPIC --to $TABLE --format json --engine local -b $BOOTSTRAP --json",
    "audit": "millstream audit $TOPIC $TABLE -b $BOOTSTRAP",
    "maintain": "millstream maintain $TABLE --app-id load:$TOPIC",
}

with DAG(
    "clicks",
    schedule=timedelta(minutes=15),
    start_date=datetime(2026, 1, 1),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 3, "retry_delay": timedelta(minutes=1)},
):
    load, audit = (
        BashOperator(task_id=name, bash_command=STEPS[name], env=SETTINGS, append_env=True)
        for name in ("load", "audit")
    )
    load >> audit

with DAG(
    "clicks_upkeep",
    schedule=timedelta(days=1),
    start_date=datetime(2026, 1, 1),
    catchup=False,
    max_active_runs=1,
):
    BashOperator(task_id="maintain", bash_command=STEPS["maintain"], env=SETTINGS, append_env=True)
