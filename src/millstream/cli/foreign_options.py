"""What to write in place of an option that Kafka's scripts and kcat have and Millstream has not.

A command that is called as another tool would be is told how it is said here. Four rules come
before the table: a word that the command takes as an argument (`--topic t`), one that is a command
of its group (`kafka-topics --list`), an option that stands before its command, and a mode of kcat
that is a command (`-C`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_LETTERS: Final[Mapping[str, str]] = {"-t": "topic", "-g": "group"}
"""Letters by which kcat and Kafka's scripts name what is an argument here."""

_MODES: Final[Mapping[str, str]] = {
    "-P": "produce",
    "-C": "consume",
    "-G": "consume TOPIC -G GROUP",
    "-L": "cluster describe, and topic list",
    "-Q": "topic offsets TOPIC --at TIME",
}

_OF_COMMANDS: Final = frozenset(
    {"-b", "--bootstrap-server", "--command-config", "--json", "--profile", "--timeout", "-X"}
)

_CLIENT_SETTING: Final = "-X NAME=VALUE gives a setting of the client"
_SETTINGS_FILE: Final = "--command-config FILE gives settings of the client"
_RESET: Final = "--to takes earliest, latest, an offset or a time"
_FORMAT: Final = "-f FORMAT chooses what is printed, for example -f '%T %k %s\\n'"

_SAID_HERE: Final[Mapping[str, str]] = {
    "--add-config": "--config KEY=VALUE, or millstream config",
    "--all-groups": "millstream group list, and describe with the names",
    "--all-topics": "without --topic it is all topics of the group",
    "--allow-principal": "--principal User:NAME",
    "--deny-principal": "--deny --principal User:NAME",
    "--broker-list": "-b names the brokers",
    "--consumer-property": _CLIENT_SETTING,
    "--consumer.config": _SETTINGS_FILE,
    "--entity-name": "millstream config describe takes --topic NAME or --broker ID",
    "--entity-type": "millstream config describe takes --topic NAME or --broker ID",
    "--dry-run": "without --execute the plan is shown",
    "--from-beginning": "reading starts at the beginning; -o end starts at the end",
    "--formatter": _FORMAT,
    "--isolation-level": "-X isolation.level=read_committed",
    "--max-messages": "-c NUMBER ends after so many records",
    "--producer-property": _CLIENT_SETTING,
    "--producer.config": _SETTINGS_FILE,
    "--property": f"-K SEPARATOR splits lines into key and value; {_FORMAT}",
    "--server": "-b names the brokers",
    "--timeout-ms": "--exit ends at the end of the topic; --timeout TIME is for brokers",
    "--to-current": "--shift-by 0",
    "--to-datetime": _RESET,
    "--to-earliest": _RESET,
    "--to-latest": _RESET,
    "--to-offset": _RESET,
    "--zookeeper": "-b names the brokers",
    "-D": "a record is a line",
    "-F": _SETTINGS_FILE,
    "-J": "--json",
    "-q": "nothing but records is written to standard output",
    "-u": "output is written as it comes",
}


def said_here(option: str, command: Any, path: str) -> str | None:
    """Return how an unknown option is said in a command of typer, None where there is no way."""
    word = _LETTERS.get(option, option.removeprefix("--"))
    for parameter in command.params:
        if parameter.param_type_name == "argument" and parameter.metavar == word.upper():
            return f"it stands without an option: {path} {parameter.metavar}"
    if word in getattr(command, "commands", {}):
        return f"it is a command: {path} {word}"
    if hasattr(command, "commands") and option in _OF_COMMANDS:
        return f"it stands behind the command: {path} COMMAND {option}"
    if option in _MODES:
        return f"kcat's {option} is millstream {_MODES[option]}"
    return _SAID_HERE.get(option)
