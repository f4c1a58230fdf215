"""Which parameters of commands are completed with names of a cluster, and of which words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import typer

from millstream.cli import completion
from millstream.cli.app import build, run
from millstream.cli.completion import add_completion, typed_words


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"COMP_WORDS": "millstream topic describe cl"}, ["topic", "describe", "cl"]),
        ({"_TYPER_COMPLETE_ARGS": "millstream lag o"}, ["lag", "o"]),
        ({"COMP_WORDS": "millstream produce 'half a"}, ["produce", "'half", "a"]),
        ({}, []),
    ],
)
def test_the_words_are_those_that_the_shell_gives(
    environment: dict[str, str], words: list[str]
) -> None:
    assert typed_words(environment) == words


def completed(command: Any, path: str = "") -> set[str]:
    """Return the parameters, as ``command: name``, that ask a cluster."""
    found = set()
    for name, each in getattr(command, "commands", {}).items():
        found |= completed(each, f"{path} {name}".strip())
    for each in command.params:
        if "shell_complete" in vars(each):
            found.add(f"{path}: {each.name}")
    return found


def test_topics_and_groups_are_completed_wherever_they_are_named() -> None:
    command = typer.main.get_command(build([]))
    add_completion(command)
    found = completed(command)
    assert {
        "acl add: group",
        "acl add: topic",
        "bench produce: topic",
        "config describe: topic",
        "consume: group",
        "consume: topic",
        "doctor group: name",
        "group delete: names",
        "group reset-offsets: name",
        "ingest: topic",
        "log-dirs move: topic",
        "topic delete: names",
    } <= found
    assert not {"topic create: names", "sql: topic_format", "log explain: partition"} & found


@pytest.mark.parametrize("option", ["--install-completion", "--show-completion"])
@pytest.mark.parametrize(
    ("more", "running", "says"),
    [
        (["foosh"], "bash", "there is no completion for 'foosh'; shells: bash, zsh, fish, power"),
        (["=foosh"], "bash", "there is no completion for 'foosh'; shells: bash, zsh, fish, power"),
        ([], "tcsh", "there is no completion for 'tcsh'"),
        ([], None, "cannot tell which shell this is; name it: OPTION bash"),
        (["zsh", "topic"], "bash", "OPTION takes one shell, not also 'topic'"),
    ],
)
def test_a_shell_without_completion_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    option: str,
    more: list[str],
    running: str | None,
    says: str,
) -> None:
    monkeypatch.setattr(completion, "_running_shell", lambda: running)
    words = [option + more[0], *more[1:]] if "=" in "".join(more) else [option, *more]
    assert run(words) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert says.replace("OPTION", option) in said.err


def test_the_shell_that_is_named_or_runs_is_set_up(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(completion, "_running_shell", lambda: "fish")
    assert run(["--show-completion", "zsh"]) == 0
    assert capsys.readouterr().out.startswith("#compdef millstream")
    assert not list(tmp_path.iterdir())
    for more, shell, file in (
        (["bash"], "bash", ".bash_completions/millstream.sh"),
        ([], "fish", ".config/fish/completions/millstream.fish"),
    ):
        assert run(["--install-completion", *more]) == 0
        assert capsys.readouterr().out == f"installed\t{shell}\t{tmp_path / file}\n"
        assert "_MILLSTREAM_COMPLETE" in (tmp_path / file).read_text()
    (tmp_path / ".zshrc").mkdir()
    assert run(["--install-completion=zsh"]) == 1
    assert f"{tmp_path}/.zshrc: Is a directory" in capsys.readouterr().err
