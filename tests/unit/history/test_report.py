"""What a run came to, for people and for scripts."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from millstream.history.checker import Anomaly, Kind
from millstream.history.faults import Fault
from millstream.history.report import as_json, as_rows, as_text, verdict
from millstream.history.run import Plan, Result

WELL: Final = Result(
    plan=Plan(settings={}, producing={}, reading={}),
    topic="t",
    seconds=2.0,
    sent=9,
    acknowledged=8,
    refused=0,
    unknown=1,
    read=8,
    duplicates=0,
    longest_gap_s=0.25,
    faults=(Fault("kill it", 0.5, 1.5, 0, ""), Fault("hang", 1.5, 2.0, None, "")),
)
LOST: Final = replace(
    WELL,
    plan=replace(WELL.plan, acks="1"),
    anomalies=[Anomaly(Kind.LOST, f"value {number} is lost") for number in range(12)],
)


def test_rows_have_the_names_of_the_json() -> None:
    rows = list(as_rows(WELL))
    document = as_json(WELL)
    figures = {str(row[0]): row[1] for row in rows if row[0] != "fault"}
    assert figures == {name: document[name] for name in figures}
    assert {"topic", "sent", "acknowledged", "read", "longest_gap_seconds"} <= figures.keys()
    faults = [row for row in rows if row[0] == "fault"]
    assert faults == [("fault", 0.5, 1.5, 0, "kill it"), ("fault", 1.5, 2.0, None, "hang")]
    assert list(verdict(WELL)) == ["no anomaly"] == list(as_text(WELL))[-1:]


def test_rows_of_anomalies() -> None:
    rows = list(as_rows(LOST))
    assert ("anomaly", "lost", 12) in rows
    assert [row[2] for row in rows if row[0] == "example"] == [
        f"value {number} is lost" for number in range(10)
    ]
    told = ["12 anomalies", "acks=1 promises nothing once the leader is gone"]
    assert list(verdict(LOST)) == told == list(as_text(LOST))[-2:]


def test_transactions_have_rows_where_there_are_some() -> None:
    made = replace(WELL, plan=replace(WELL.plan, is_transactional=True), committed=5, aborted=2)
    assert {("transactions_committed", 5), ("transactions_aborted", 2)} <= set(as_rows(made))
    assert "transactions_committed" not in {row[0] for row in as_rows(WELL)}
