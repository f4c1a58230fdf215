"""What commands print on a terminal, and what into a pipe: rows, and nothing but rows."""

from __future__ import annotations

import pytest

from millstream.cli.output import print_done, print_note, print_rows

Captured = pytest.CaptureFixture[str]
COLUMNS = {"name": "name", "value": "value"}


def test_a_pipe_gets_rows_and_the_sentences_go_beside_it(capfd: Captured) -> None:
    print_rows([{"name": "a", "value": [1, 2]}, {"name": "b", "value": None}], COLUMNS, title="t")
    print_done("created topic x", "created", "topic", "x")
    print_note("2 of them")
    out, err = capfd.readouterr()
    assert out == "a\t1,2\nb\t-\ncreated\ttopic\tx\n"
    assert err == "2 of them\n"


@pytest.mark.usefixtures("terminal")
def test_a_terminal_gets_tables_and_sentences(capfd: Captured) -> None:
    print_rows([{"name": "a", "value": 1}], COLUMNS)
    print_done("created topic x", "created", "topic", "x")
    print_note("1 of them")
    out, err = capfd.readouterr()
    assert out.splitlines()[-2:] == ["created topic x", "1 of them"]
    assert out.split()[:2] == ["name", "value"]
    assert err == ""


@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize("width", [1, 20, 30, 40, 60, 120])
def test_a_narrow_terminal_loses_nothing_of_a_table(
    capfd: Captured, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    identifier = "INscMWdEQcS7W-x_rsWfAw"
    names = ["topic", "partition", "leader epoch", "replicas", "id", "size bytes"]
    row = dict(zip(names, ["t", 0, 12_345_678, [1, 2, 3], identifier, 9_548_049], strict=True))
    print_rows([row], {name: name for name in names})
    lines = capfd.readouterr().out.splitlines()
    words = " ".join(lines).split()
    assert {"topic", "partition", "leader", "epoch", "replicas", "12345678", "9548049"} <= {*words}
    assert "".join(word for word in words if word in identifier and len(word) > 5) == identifier


def test_no_cell_breaks_its_row(capfd: Captured) -> None:
    print_rows([{"name": "a\tb", "value": "one\r\ntwo"}], COLUMNS)
    assert capfd.readouterr().out == "a\\tb\tone\\r\\ntwo\n"
