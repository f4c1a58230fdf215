"""Options of Kafka's scripts and of kcat: the error says what to write here."""

from __future__ import annotations

import pytest

from millstream.cli.main import main


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("topic --list", "it is a command: millstream topic list"),
        ("topic create --topic t", "it stands without an option: millstream topic create TOPIC"),
        ("group describe --group g", "millstream group describe GROUP"),
        ("produce -t t", "it stands without an option: millstream produce TOPIC"),
        ("consume t --from-beginning", "reading starts at the beginning"),
        ("consume t --max-messages 5", "-c NUMBER"),
        ("consume t --isolation-level read_committed", "-X isolation.level=read_committed"),
        ("consume -C -t t", "kcat's -C is millstream consume"),
        ("-b localhost:1 topic list", "it stands behind the command: millstream COMMAND -b"),
        ("topic --profile dev list", "behind the command: millstream topic COMMAND --profile"),
        ("-L", "kcat's -L is millstream cluster describe, and topic list"),
        ("produce t --producer-property acks=1", "-X NAME=VALUE"),
        ("group reset-offsets g --to-earliest", "--to takes earliest"),
        ("group reset-offsets g --all-topics", "without --topic it is all topics of the group"),
        ("acl add --allow-principal User:ann", "--principal User:NAME"),
    ],
)
def test_what_to_write_in_its_place(
    capsys: pytest.CaptureFixture[str], words: str, hint: str
) -> None:
    assert main(words.split()) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("millstream: No such option: -")
    assert hint in line
    assert line.endswith(" --help)")


def test_an_option_that_nobody_has_and_one_without_its_value(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["topic", "list", "--bootstrap-servers", "x"]) == 2
    assert "--bootstrap-server" in capsys.readouterr().err
    assert main(["group", "delete-offsets", "g", "--topic"]) == 2
    assert capsys.readouterr().err == (
        "millstream: Option '--topic' requires an argument "
        "(see millstream group delete-offsets --help)\n"
    )
