"""Which parameters of commands are completed with names of a cluster, and of which words."""

from __future__ import annotations

from typing import Any

import pytest
import typer

from millstream.cli.app import build
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
