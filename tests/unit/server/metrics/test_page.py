"""docs/monitoring.md has the tables of the code; rules and dashboard name what there is."""

from __future__ import annotations

import json
import re
from pathlib import Path

from millstream.server.metrics import catalogue
from millstream.server.metrics.catalogue import MetricName

REPOSITORY = Path(__file__).parents[4]


def names_of_series() -> set[str]:
    found = {"up"}
    for metric in catalogue.metrics():
        found.add(metric.name)
        if metric.kind is catalogue.Kind.HISTOGRAM:
            found |= {f"{metric.name}_{end}" for end in ("bucket", "sum", "count")}
    return found


def test_the_page_has_the_tables_of_the_code() -> None:
    page = (REPOSITORY / "docs" / "monitoring.md").read_text()
    tables = "\n".join(catalogue.page()).strip()
    assert tables in page, "python -m millstream.server.metrics.catalogue, into docs/monitoring.md"


def test_every_metric_is_told() -> None:
    rooms = (REPOSITORY / "src" / "millstream" / "server" / "metrics").glob("*.py")
    code = "".join(room.read_text() for room in rooms if room.name != "catalogue.py")
    constants = {name for name, value in vars(catalogue).items() if isinstance(value, MetricName)}
    assert {name for name in constants if f"catalogue.{name}" not in code} == set()


def test_names_follow_the_conventions() -> None:
    names = [metric.name for metric in catalogue.metrics()]
    assert len(names) == len(set(names))
    for metric in catalogue.metrics():
        assert re.fullmatch(r"millstream_[a-z_]+", metric.name)
        assert metric.name.endswith("_total") == (metric.kind is catalogue.Kind.COUNTER)
        assert metric.kind is not catalogue.Kind.HISTOGRAM or metric.name.endswith("_seconds")
        assert metric.help.endswith(".")


def test_rules_and_dashboard_name_metrics_that_there_are() -> None:
    rules = (REPOSITORY / "contrib" / "prometheus" / "rules.yml").read_text()
    dashboard = (REPOSITORY / "contrib" / "grafana" / "millstream.json").read_text()
    json.loads(dashboard)
    for text in (rules, dashboard):
        used = set(re.findall(r"\bmillstream_[a-z_]+\b", text))
        assert used
        assert used <= names_of_series()
