"""The machine of the audit log: routes, repeats, the rate limit, and what was left out."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.unit.security.audit.audit_events import ANN, Site, at, check, decided, login

from millstream.model.topic import AUDIT_LOG_TOPIC
from millstream.security.audit.kinds import CLASSES, EventKind, Outcome
from millstream.security.audit.machine import Destination, Reason
from millstream.security.audit.record import SCHEMA

CONSUME, PRODUCE = EventKind.CONSUME, EventKind.PRODUCE


def read(site: Site, seconds: float, name: str = "t") -> None:
    """Tell of an allowed read."""
    key, now = ("User:ann", name), at(seconds * 1_000)
    if not site.machine.counts(CONSUME, key, now):
        site.machine.repeatable(decided(CONSUME, name=name), key, now)


def test_each_kind_goes_where_its_route_says() -> None:
    site = Site(
        routes={
            (EventKind.AUTHENTICATION, Outcome.FAILED): Destination.FILE,
            (EventKind.MANAGEMENT, Outcome.DENIED): Destination.TOPIC,
        }
    )
    site.machine.authentication(login(), at(0))
    site.machine.authentication(login(Outcome.SUCCEEDED), at(0))
    site.machine.authorization(decided(is_allowed=True), at(0))
    site.machine.authorization(decided(is_allowed=False), at(0))
    assert [(each.destination, dict(each.stands_for)) for each in site.entries] == [
        (Destination.FILE, {"authentication.failed": 1}),
        (Destination.TOPIC, {"management.denied": 1}),
    ]
    assert [each.key for each in site.entries] == [b"User:ann", b"User:ann"]
    assert site.machine.records(EventKind.MANAGEMENT, Outcome.DENIED)
    assert not site.machine.records(EventKind.MANAGEMENT, Outcome.ALLOWED)


def test_records_have_ids_that_differ_and_are_as_the_schema_says() -> None:
    site = Site(burst_events=2)
    for outcome in (Outcome.FAILED, Outcome.SUCCEEDED, Outcome.EXPIRED):
        site.machine.authentication(login(outcome), at(0))
    for kind, outcome in CLASSES:
        if kind is not EventKind.AUTHENTICATION:
            for _ in range(3):
                site.machine.authorization(
                    decided(kind, is_allowed=outcome is Outcome.ALLOWED), at(0)
                )
    read(site, 1)
    read(site, 2)
    site.machine.end(at(3_000))
    assert len({each["id"] for each in site.records}) == len(site.records) > 20
    for each in site.records:
        check(each)
    types = {each["type"].rpartition("/")[2] for each in site.records}
    assert types == {"authentication", "authorization", "left-out"}


def test_the_same_read_is_counted_until_the_interval_ends() -> None:
    site = Site(repeat_interval_ms=10_000)
    for second in (0, 1, 2, 9.9):
        read(site, second)
    read(site, 3, "other")
    assert len(site.entries) == 2
    site.machine.tick(at(9_950))
    assert len(site.entries) == 2
    site.machine.tick(at(10_000))
    assert dict(site.entries[2].stands_for) == {"consume.allowed": 3}
    repeated = site.records[2]["data"]["repeated"]
    assert repeated["count"] == 3
    assert (repeated["from"], repeated["to"]) == (
        "2023-11-14T22:13:21.000Z",
        "2023-11-14T22:13:29.900Z",
    )
    read(site, 10.1)
    assert len(site.entries) == 4
    assert "repeated" not in site.records[3]["data"]


def test_one_after_the_interval_brings_what_was_counted_before() -> None:
    site = Site(repeat_interval_ms=10_000)
    read(site, 0)
    read(site, 1)
    read(site, 11)  # no tick came in between
    assert [each["data"].get("repeated", {}).get("count") for each in site.records] == [
        None,
        1,
        None,
    ]


def test_an_interval_of_zero_records_each() -> None:
    site = Site(repeat_interval_ms=0)
    for _ in range(5):
        read(site, 0)
    assert len(site.entries) == 5
    assert not site.machine.is_busy


def test_reads_of_the_audit_log_are_never_recorded_each() -> None:
    """Each record would be the next thing to read, for ever."""
    site = Site(repeat_interval_ms=0)
    for _ in range(5):
        read(site, 0, AUDIT_LOG_TOPIC)
    assert len(site.entries) == 1
    site.machine.tick(at(60_000))
    assert site.records[1]["data"]["repeated"]["count"] == 4


def test_management_is_never_counted_only() -> None:
    site = Site()
    for _ in range(3):
        site.machine.repeatable(decided(), ("k",), at(0))
        assert not site.machine.counts(EventKind.MANAGEMENT, ("k",), at(0))
    assert len(site.entries) == 3


def test_what_was_allowed_to_an_excluded_principal_is_left_alone() -> None:
    site = Site(excluded_principals=frozenset({"User:ann"}))
    site.machine.authentication(login(Outcome.SUCCEEDED), at(0))
    site.machine.authorization(decided(), at(0))
    read(site, 0)
    assert not site.entries
    site.machine.authentication(login(), at(0))
    site.machine.authorization(decided(is_allowed=False), at(0))
    assert len(site.entries) == 2


def test_what_the_rate_limit_leaves_out_is_a_record() -> None:
    site = Site(max_events_per_second=10, burst_events=3)
    for number in range(8):
        site.machine.authorization(decided(is_allowed=False), at(number))
    assert len(site.entries) == 3
    assert site.machine.is_busy
    site.machine.tick(at(1_000))
    record = site.records[3]
    assert record["type"] == "millstream.audit/left-out"
    assert record["data"] == {
        "reason": "rate-limit",
        "from": "2023-11-14T22:13:20.003Z",
        "to": "2023-11-14T22:13:20.007Z",
        "total": 5,
        "counts": {"management.denied": 5},
    }
    assert not site.machine.is_busy
    site.machine.authorization(decided(is_allowed=False), at(1_000))
    assert len(site.entries) == 5, "tokens come back with time"


def test_a_flood_of_one_kind_does_not_hide_another() -> None:
    site = Site(burst_events=2, max_events_per_second=1)
    for _ in range(100):
        site.machine.authorization(decided(PRODUCE, is_allowed=False), at(0))
    site.machine.authentication(login(), at(0))
    assert dict(site.entries[-1].stands_for) == {"authentication.failed": 1}


def test_left_out_records_come_once_a_second_at_most() -> None:
    site = Site(burst_events=1, max_events_per_second=1)
    for number in range(10):
        site.machine.authorization(decided(is_allowed=False), at(number * 100))
        site.machine.tick(at(number * 100))
    told = [each for each in site.records if each["type"].endswith("left-out")]
    assert len(told) == 1
    site.machine.tick(at(1_100))
    assert sum(each["data"].get("total", 0) for each in site.records) == 9


def test_what_a_full_queue_loses_is_a_record_once_there_is_room() -> None:
    site = Site(room=1)
    for number in range(4):
        site.machine.authorization(decided(name=str(number)), at(number))
    site.machine.tick(at(5_000))
    assert len(site.entries) == 1, "there is no room yet"
    site.room = 10
    site.machine.tick(at(6_000))
    assert site.records[1]["data"]["reason"] == "queue-full"
    assert site.records[1]["data"]["counts"] == {"management.allowed": 3}


def test_what_is_lost_behind_it_is_counted_by_what_it_stands_for() -> None:
    site = Site(burst_events=1, max_events_per_second=1)
    for _ in range(5):
        site.machine.authorization(decided(), at(0))
    site.machine.tick(at(0))
    first, left_out = site.entries
    site.entries.clear()
    site.machine.lost(first, Reason.WRITE_FAILED, at(2_000))
    site.machine.lost(left_out, Reason.WRITE_FAILED, at(2_000))
    assert site.machine.left_out == {"management.allowed": 5}
    site.machine.tick(at(3_000))
    (record,) = site.records
    assert (record["data"]["reason"], record["data"]["total"]) == ("write-failed", 5)


def test_other_settings_end_what_is_being_counted() -> None:
    site = Site()
    read(site, 0)
    read(site, 1)
    policy = site.machine._policy
    site.machine.set_policy(policy, at(1_500))
    assert len(site.entries) == 1, "nothing has changed"
    changed = type(policy)({}, 1, 1, 0)
    site.machine.set_policy(changed, at(2_000))
    assert site.records[1]["data"]["repeated"]["count"] == 1
    read(site, 3)
    assert len(site.entries) == 2


@pytest.mark.parametrize("text", ["a\nb", '"}', "ü\u2028", "\ud800", "x" * 10_000])
def test_no_text_of_a_client_ends_a_line_or_is_shown_whole(text: str) -> None:
    site = Site()
    origin = type(ANN)(f"User:{text}", text, 1, text, text, text, text)
    site.machine.authorization(decided(name=text, origin=origin), at(0))
    (entry,) = site.entries
    assert b"\n" not in entry.value
    assert len(entry.value) < 15_000 if len(text) < 1_000 else len(entry.value) < 50_000
    assert json.loads(entry.value)["data"]["authorizationInfo"]["resourceName"].startswith(
        text[:100]
    )


def test_the_page_of_the_schema_is_up_to_date() -> None:
    """Write it again: python -m millstream.security.audit.record > docs/audit-log.schema.json."""
    page = Path(__file__).parents[4] / "docs" / "audit-log.schema.json"
    assert json.loads(page.read_text()) == SCHEMA


def test_the_record_on_the_page_is_as_the_schema_says() -> None:
    page = (Path(__file__).parents[4] / "docs" / "audit.md").read_text()
    (example, _) = re.findall(r"^```json\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    check(json.loads(example))
