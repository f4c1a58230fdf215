"""Prints the reference of all commands, which is kept as docs/commands.md."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import typer

from millstream.cli.app import build
from millstream.cli.client_options import add_client_options

INTRODUCTION: Final = """\
# Commands

Generated from the code: `python -m millstream.cli.reference > docs/commands.md`.

On a terminal commands print tables; into a pipe go tab-separated lines without headings; `--json`
prints JSON. The exit code is 0, or 1 if the command failed, 2 if the command line is wrong, 130
after Ctrl-C, 143 after SIGTERM. Errors are one sentence on standard error.

Commands with `--bootstrap-server` take `--profile NAME`, `--command-config FILE` and
`-X NAME=VALUE` for settings of the client ([client.md](client.md)); these are not repeated below.
"""

_OF_THE_CLIENT: Final = frozenset({"profile", "command_config", "client_setting", "help"})


def reference() -> str:
    """Return the whole page in Markdown."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield INTRODUCTION
    group: Any = typer.main.get_command(build([]))
    add_client_options(group)
    for name, command in group.commands.items():
        yield from _command(f"millstream {name}", command)


def _command(name: str, command: Any) -> Iterator[str]:
    inner = getattr(command, "commands", {})
    if not inner or getattr(command, "invoke_without_command", False):
        yield from _one(name, command)
    for each, below in inner.items():
        yield from _command(f"{name} {each}", below)


def _one(name: str, command: Any) -> Iterator[str]:
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    usage = "".join(f" {_argument(each)}" for each in arguments)
    yield f"## `{name}{usage}`\n"
    yield f"{_text(command.help)}\n"
    shown = [each for each in command.params if each.name not in _OF_THE_CLIENT]
    rows = [each for each in shown if getattr(each, "help", None)]
    if rows:
        yield "| option | meaning |"
        yield "|---|---|"
        for each in rows:
            yield f"| {_option(each)} | {_text(each.help)} |"
        yield ""


def _argument(argument: Any) -> str:
    name = (argument.metavar or argument.name.upper()) + ("…" if argument.nargs == -1 else "")
    return name if argument.required else f"[{name}]"


def _option(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{_argument(parameter)}`"
    value = "" if parameter.is_flag else f" {parameter.metavar or parameter.name.upper()}"
    return ", ".join(f"`{each}{value}`" for each in parameter.opts).replace("|", "\\|")


def _text(text: str | None) -> str:
    return " ".join((text or "").split()).replace("|", "\\|")


if __name__ == "__main__":
    print(reference(), end="")
