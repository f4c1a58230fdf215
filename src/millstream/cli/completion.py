"""Completion of names of topics and groups in a shell: a cluster is asked while TAB is pressed.

`millstream --install-completion` installs what the shell calls; commands and options are completed
by typer. The cluster is the one of ``-b``, of a profile, of ``-X`` or of the environment, as far as
they stand before the word. One that does not answer completes nothing.
"""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from millstream.cli.arguments import UsageError
from millstream.cli.failures import CommandFailedError
from millstream.cli.output import print_done

if TYPE_CHECKING:
    from millstream.client import Admin

_VARIABLE: Final = "_MILLSTREAM_COMPLETE"
_PROGRAM: Final = "millstream"
_SHELLS: Final = ("bash", "zsh", "fish", "powershell", "pwsh")
_WORDS: Final = ("_TYPER_COMPLETE_ARGS", "COMP_WORDS")
"""Variables in which a shell gives what was typed: bash the last, the others the first."""
_PATIENCE: Final = "2s"
_BOOTSTRAP: Final = frozenset({"bootstrap", "bootstrap_server"})


@dataclass(frozen=True, slots=True)
class Completion:
    """One word that the shell may put there."""

    value: str
    type: str = "plain"
    help: str | None = None


class Context(Protocol):
    """What typer has read of the words before."""

    params: Mapping[str, Any]


def typed_words(environment: Mapping[str, str]) -> list[str]:
    """Return the words behind the name of the program that a shell wants completed."""
    typed = next((environment[each] for each in _WORDS if each in environment), "")
    try:
        return shlex.split(typed)[1:]
    except ValueError:  # within a quotation
        return typed.split()[1:]


def set_up_completion(words: Sequence[str]) -> None:
    """Do what one of OPTIONS asks for, which stands first; the shell behind it is the one that runs
    the command if none is named. UsageError for one that has no completion.
    """
    option, _, given = words[0].partition("=")
    shell, *more = [*filter(None, [given]), *words[1:]] or [_running_shell() or ""]
    if more:
        raise UsageError(f"{option} takes one shell, not also {more[0]!r}")
    if not shell:
        raise UsageError(f"cannot tell which shell this is; name it: {option} {_SHELLS[0]}")
    if shell not in _SHELLS:
        raise UsageError(f"there is no completion for {shell!r}; shells: {', '.join(_SHELLS)}")
    from typer._completion_shared import get_completion_script, install

    if option == "--show-completion":
        print(get_completion_script(prog_name=_PROGRAM, complete_var=_VARIABLE, shell=shell))
        return
    try:
        _, path = install(shell=shell, prog_name=_PROGRAM, complete_var=_VARIABLE)
    except subprocess.CalledProcessError as error:  # of PowerShell, which is asked for its profile
        raise CommandFailedError(f"{shell} ended with exit code {error.returncode}") from None
    print_done(
        f"{shell} completion installed in {path}; it works in shells that are started from now on",
        *("installed", shell, str(path)),
    )


def _running_shell() -> str | None:
    """Return the name of the shell that runs this process."""
    from typer._completion_shared import _get_shell_name

    return _get_shell_name()


def add_completion(command: Any) -> None:
    """Complete topics and groups in a command of typer, and in all commands of a group."""
    for each in getattr(command, "commands", {}).values():
        add_completion(each)
    if not {each.name for each in command.params} & _BOOTSTRAP:
        return
    for each in command.params:
        names = _names_of(command.name, each)
        if names is not None:
            each.shell_complete = _completing(names)


def _names_of(command: str, parameter: Any) -> Callable[[Admin], Iterable[str]] | None:
    """Return what lists the names that a parameter takes."""
    words = str(parameter.metavar or parameter.name).upper()
    if command == "create" or "=" in words:
        return None
    if words.startswith("TOPIC"):
        return lambda admin: admin.list_topics()
    if words.startswith("GROUP"):
        return lambda admin: [each.group for each in admin.list_groups()]
    return None


def _completing(
    names: Callable[[Admin], Iterable[str]],
) -> Callable[[Context, str], list[Completion]]:
    def complete(context: Context, incomplete: str) -> list[Completion]:
        before, comma, last = incomplete.rpartition(",")
        try:
            found = _ask(context, names)
        except Exception:
            # Whatever is wrong: a sentence would stand in the middle of the user's line.
            return []
        return [Completion(f"{before}{comma}{each}") for each in found if each.startswith(last)]

    return complete


def _ask(context: Context, names: Callable[[Admin], Iterable[str]]) -> list[str]:
    from millstream.cli.arguments import DEFAULT_BOOTSTRAP, open_admin

    given = next((context.params[each] for each in _BOOTSTRAP if context.params.get(each)), None)
    with open_admin(given or DEFAULT_BOOTSTRAP, _PATIENCE) as admin:
        return sorted(names(admin))
