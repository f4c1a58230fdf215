"""What `millstream audit-log` shows of records, and which it leaves out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.unit.security.audit.audit_events import ANN, Site, at, decided, login

from millstream.cli.main import main
from millstream.security.audit.event import Authorization
from millstream.security.audit.kinds import EventKind, Outcome


def event(base: Authorization, **changes: object) -> Authorization:
    fields = {name: getattr(base, name) for name in Authorization.__slots__}
    return Authorization(**(fields | changes))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    site = Site(burst_events=3, max_events_per_second=1)
    machine = site.machine
    machine.authentication(login(reason="no such \x1b[31m thing"), at(0))
    machine.authentication(login(Outcome.SUCCEEDED), at(1_000))
    machine.authorization(event(decided(name="hits"), result={"status": "SUCCESS"}), at(2_000))
    machine.authorization(
        event(
            decided(is_allowed=False, name="other"),
            result={"status": "FAILURE", "error": "TOPIC_AUTHORIZATION_FAILED"},
        ),
        at(3_000),
    )
    bob = type(ANN)("User:bob", "10.0.0.8", 1, "CLIENTS", "SSL", "SSL")
    for number in range(6):
        machine.authorization(
            decided(EventKind.PRODUCE, is_allowed=False, origin=bob, name="hits"),
            at(4_000 + number),
        )
    machine.repeatable(decided(EventKind.CONSUME, name="hits"), ("k",), at(5_000))
    for _ in range(7):
        assert machine.counts(EventKind.CONSUME, ("k",), at(5_000))
    machine.tick(at(5_000))
    machine.end_repeats(at(6_000))
    path = tmp_path / "audit.log"
    path.write_bytes(b"".join(each.value + b"\n" for each in site.entries))
    return path


def shown(path: Path, capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    assert main(["audit-log", "--file", str(path), *words]) == 0
    return capsys.readouterr().out.splitlines()


def test_each_record_is_a_line(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [line.split(" ", 1)[1] for line in shown(path, capsys)]
    assert lines[:3] == [
        "failed User:ann from 10.0.0.7 SASL_SSL/SCRAM-SHA-512 as ann (no such ?[31m thing)",
        "succeeded User:ann from 10.0.0.7 SASL_SSL/SCRAM-SHA-512 as ann",
        "allowed User:ann from 10.0.0.7 CreateTopics Create Topic hits",
    ]
    assert lines[3].endswith("CreateTopics Create Topic other -> TOPIC_AUTHORIZATION_FAILED")
    assert "left out (rate-limit): 3 produce.denied" in lines
    assert lines[-1] == "allowed User:ann from 10.0.0.7 CreateTopics Create Topic hits 7 times more"


@pytest.mark.parametrize(
    ("words", "count"),
    [
        (["--principal", "User:bob"], 3),
        (["-p", "User:bob", "-p", "User:ann"], 9),
        (["--resource", "other"], 1),
        (["--resource", "hits", "--denied"], 3),
        (["--denied"], 5),
        (["--kind", "authentication"], 2),
        (["--kind", "authentication", "--kind", "management"], 4),
        (["--since", "@1700000004000"], 5),
    ],
)
def test_what_is_not_asked_for_is_left_out(
    path: Path, capsys: pytest.CaptureFixture[str], words: list[str], count: int
) -> None:
    lines = shown(path, capsys, *words, "--json")
    records = [json.loads(line) for line in lines]
    told = [each for each in records if each["type"].endswith("left-out")]
    assert len(told) == 1, "it is always told"
    assert len(records) - len(told) == count


def test_resources_in_a_request_are_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site = Site()
    data = {"deletions": [{"name": "bob"}], "upsertions": [{"name": "cat"}]}
    site.machine.authorization(event(decided(name="x"), data=data), at(0))
    path = tmp_path / "audit.log"
    path.write_bytes(site.entries[0].value + b"\n")
    assert len(shown(path, capsys, "--resource", "cat")) == 1
    assert shown(path, capsys, "--resource", "dog") == []


def test_lines_that_are_no_records_are_counted(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = len(shown(path, capsys))
    path.write_bytes(b'{"half\n[]\n{}\n' + path.read_bytes())
    assert main(["audit-log", "--file", str(path)]) == 0
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == before
    assert "3 of the lines are not records" in err


def test_a_file_of_something_else_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "other").write_text("listeners=PLAINTEXT://:9092\nnode.id=1\n")
    assert main(["audit-log", "--file", str(tmp_path / "other")]) == 1
    assert "2 of the lines are not records" in capsys.readouterr().err


def test_a_kind_that_is_none_is_told_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit-log", "--kind", "bogus"]) == 2
    assert "'--kind': 'bogus' is not one of 'authentication'" in capsys.readouterr().err


def test_a_file_that_is_not_there_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["audit-log", "--file", str(tmp_path / "none")]) == 1
    assert "No such file" in capsys.readouterr().err
