"""The entry point: what it imports, and what becomes of errors."""

from __future__ import annotations

import shlex
import subprocess
import sys

import pytest

from millstream.cli.main import main

_LISTING = """
import sys
from millstream.cli.main import main
main({words!r})
print(*sorted(name for name in {names!r} if name in sys.modules))
"""


def modules_after(words: list[str], names: list[str]) -> str:
    """Run a command line in a process of its own; return which of ``names`` it imported."""
    done = subprocess.run(
        [sys.executable, "-c", _LISTING.format(words=words, names=names)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout.splitlines()[-1]


def test_serve_imports_no_library_of_the_command_line() -> None:
    # A wrong port is found out before anything is started.
    slow = ["typer", "rich", "argparse", "numpy", "pyarrow", "millstream.client"]
    assert modules_after(["serve", "--port", "x"], slow) == ""


def test_a_command_imports_neither_rich_nor_other_commands() -> None:
    slow = ["rich", "numpy", "pyarrow", "pyspark", "millstream.cli.demo", "millstream.cli.ingest"]
    assert modules_after(["topic", "list", "-b", "no port:x"], slow) == ""


@pytest.mark.parametrize(
    "words",
    [
        ["serve", "--port", "99999"],
        ["serve", "--override", "no-equals-sign"],
        ["serve", "--nope"],
        ["serve", "--port"],
        ["serve", "a.properties", "b.properties"],
        ["nope"],
        ["topic", "create"],
        ["topic", "list", "--bootstrap-server", "nowhere:port"],
        ["consume", "t", "--format", "%q"],
        ["config", "describe"],
        ["group", "reset-offsets", "g", "--to", "earliest", "--shift-by", "1"],
        ["ingest", "-"],
    ],
)
def test_a_wrong_command_line_is_one_sentence_and_exit_code_2(
    words: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    said = capfd.readouterr().err
    assert said.startswith("millstream")
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    "words",
    [
        ["topic", "list", "-b", "127.0.0.1:1"],
        ["serve", "/nonexistent/server.properties"],
        ["serve", "--override", "log.retention.ms=soon"],
        ["serve", "--override", "no.such.setting=1"],
        ["log", "dump", __file__],
        ["ingest", "/nonexistent/access.log", "-t", "t"],
    ],
)
def test_a_failure_is_one_sentence_and_exit_code_1(
    words: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 1
    said = capfd.readouterr().err
    assert said.startswith("millstream")
    assert said.count("\n") == 1


def test_help_lists_every_command(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    text = capfd.readouterr().out
    for name in (
        "serve",
        "topic",
        "config",
        "produce",
        "consume",
        "group",
        "ingest",
        "log",
        "demo",
    ):
        assert f"\n  {name} " in text


@pytest.mark.parametrize("option", ["--key", "--header"])
def test_words_that_are_no_utf_8_are_one_sentence(
    option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["produce", "t", option, "a=\udcff"]) == 1
    wrong = "a=\\udcff" if option == "--key" else "\\udcff"
    assert capsys.readouterr().err == f"millstream: '{wrong}' cannot be written as utf-8\n"


def test_closed_standard_streams_are_empty_ones() -> None:
    python = shlex.quote(sys.executable)
    command = f"{python} -m millstream.cli.main topic list -b 127.0.0.1:1 <&- >&-"
    done = subprocess.run(
        ["/bin/sh", "-c", command], stderr=subprocess.PIPE, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith("millstream: no broker answers")
    command = f"{python} -m millstream.cli.main topic --help >&-"
    done = subprocess.run(
        ["/bin/sh", "-c", command], stderr=subprocess.PIPE, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
