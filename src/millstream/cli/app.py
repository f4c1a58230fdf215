"""The typer application: every command, its help, and what becomes of errors."""

from __future__ import annotations

import itertools
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from millstream import __version__
from millstream.cli import serve_arguments
from millstream.cli.arguments import UsageError
from millstream.cli.failures import (
    FAILED,
    INTERRUPTED,
    TERMINATED,
    WRONG_USAGE,
    complain,
    is_tellable,
    sentence,
)
from millstream.cli.full_disks import is_of_standard_output, name_standard_output

_GROUPS: Final = (
    "topic",
    "config",
    "acl",
    "cert",
    "quota",
    "token",
    "user",
    "group",
    "txn",
    "cluster",
    "check",
    "doctor",
    "zookeeper",
    "log",
    "log-dirs",
    "dlq",
    "pipeline",
    "bench",
)
"""Groups of commands: each is a module with a typer application ``app``."""

_COMMANDS: Final[Mapping[str, str]] = {
    "topic": "Topics: create, list, describe, alter, delete; offsets, analyze, delete-records.",
    "config": "Settings of topics, brokers and groups.",
    "acl": "Access rules: who may do what.",
    "cert": "Certificates for TLS.",
    "quota": "Quotas: how much users, client ids and addresses may use.",
    "token": "Delegation tokens.",
    "user": "Users that authenticate with SCRAM.",
    "produce": "Write the lines of standard input to a topic, one record each.",
    "consume": "Print the records of a topic and wait for more, until Ctrl-C, --exit or --count.",
    "group": "Consumer groups and share groups.",
    "txn": "Transactions: list, describe, find-hanging, abort.",
    "cluster": "Clusters: start, describe, elect-leaders, reassign, doctor, features, "
    "api-versions, migrate-metadata.",
    "check": "Check the guarantees of a cluster: history.",
    "doctor": "Find out what is wrong: why a client cannot connect, what is at risk in a cluster, "
    "why a group rebalances, what holds readers of transactions, why a disk fills, which "
    "settings are unwise.",
    "zookeeper": "ZooKeeper for a cluster's metadata.",
    "ingest": "Write every line of files to a topic, in order, each batch to the next partition.",
    "log": "The files of a log.",
    "log-dirs": "Log directories: describe, move replicas.",
    "demo": "Run the main job: access log, topic, consumer group, Spark, Parquet, and what each "
    "took.",
    "load": "Load a topic into a table, each record once.",
    "audit": "Compare a table with its topic: ranges, gaps, duplicates, and offsets without a "
    "record.",
    "audit-log": "Print the audit log: one line for each record that matches all options.",
    "repair": "Remove duplicate references to data files from a table and its dead letters, and "
    "commit dead letters that a crashed load left behind. No row is written.",
    "maintain": "Join small files, remove versions of the table older than --keep, and delete "
    "files that no version refers to.",
    "lag": "Show how far a table is behind: in offsets, in rows, and the age of the oldest "
    "missing record.",
    "dlq": "Dead letters: records that a load could not read.",
    "pipeline": "Several loads described in one pipeline.toml.",
    "report": "Summarize an access log: hits by hour, status, top pages, sessions. Computed by "
    "Spark.",
    "sql": "Run a SELECT over topics in place.",
    "bench": "Measure the speed of a cluster: produce, consume, end-to-end.",
    "console": "Show a cluster in the browser: brokers, topics, records, groups, transactions and "
    "rules.",
}
"""All commands, with the first sentence of their help. One that is no group is a module with a
function of its own name. The list of commands is shown from this table, because importing all of
them takes longer than most commands run; a test compares it with what they say themselves.
"""

_COMPLETION: Final = "_MILLSTREAM_COMPLETE"
"""Set by a shell that wants words completed."""
_OF_COMPLETION: Final = frozenset({"--install-completion", "--show-completion"})


def build(words: Sequence[str]) -> typer.Typer:
    """Return the application. Of the modules only the one that ``words`` begin with is imported:
    the others would cost more time than most commands take.
    """
    app = _without_commands()
    wanted = words[:1] if words and words[0] in _COMMANDS else _COMMANDS
    for name in wanted:
        module = import_module(f"millstream.cli.{name.replace('-', '_')}")
        if name in _GROUPS:
            app.add_typer(module.app, name=name)
        else:
            app.command(name)(getattr(module, name.replace("-", "_")))
    return app


def build_list() -> typer.Typer:
    """Return an application that can list its commands, and run none of them."""
    app = _without_commands()
    for name, text in _COMMANDS.items():
        if name in _GROUPS:
            group = typer.Typer(help=text)
            group.callback()(_listed)
            app.add_typer(group, name=name)
        else:
            app.command(name, help=text)(_listed)
    return app


def _listed() -> None:
    raise AssertionError("build imports a command that is run; this one is listed")


def _without_commands() -> typer.Typer:
    app = typer.Typer(
        name="millstream",
        context_settings={"help_option_names": ["-h", "--help"]},
        rich_markup_mode=None,
    )
    app.callback()(millstream)
    app.command("serve")(serve)
    app.command("keeper")(keeper)
    return app


def _tell_version(wanted: bool) -> None:
    if wanted:
        print(f"millstream {__version__}")
        raise typer.Exit


def millstream(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_tell_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """A commit log that speaks the Apache Kafka protocol, and its tools."""


def serve(
    properties_file: Annotated[
        str | None, typer.Argument(metavar="SERVER.PROPERTIES", help="A Kafka server.properties.")
    ] = None,
    override: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help=serve_arguments.OPTION_HELP["--override"]),
    ] = None,
    data_dir: Annotated[
        str | None, typer.Option(help=serve_arguments.OPTION_HELP["--data-dir"])
    ] = None,
    host: Annotated[str | None, typer.Option(help=serve_arguments.OPTION_HELP["--host"])] = None,
    port: Annotated[int | None, typer.Option(help=serve_arguments.OPTION_HELP["--port"])] = None,
    advertise: Annotated[
        str | None,
        typer.Option(metavar="HOST[:PORT]", help=serve_arguments.OPTION_HELP["--advertise"]),
    ] = None,
    brokers: Annotated[
        str | None,
        typer.Option(metavar="N|auto", help=serve_arguments.OPTION_HELP["--brokers"]),
    ] = None,
    ports: Annotated[
        str | None, typer.Option(metavar="PORT,…", help=serve_arguments.OPTION_HELP["--ports"])
    ] = None,
    pin: Annotated[bool, typer.Option("--pin", help=serve_arguments.OPTION_HELP["--pin"])] = False,
    log_level: Annotated[
        str | None,
        typer.Option(metavar="LEVEL", help=serve_arguments.OPTION_HELP["--log-level"]),
    ] = None,
    console: Annotated[
        bool, typer.Option("--console", help=serve_arguments.OPTION_HELP["--console"])
    ] = False,
    console_port: Annotated[
        int | None, typer.Option(help=serve_arguments.OPTION_HELP["--console-port"])
    ] = None,
    console_writes: Annotated[
        bool, typer.Option("--console-writes", help=serve_arguments.OPTION_HELP["--console-writes"])
    ] = False,
) -> None:
    """Run a broker, or several, until SIGTERM or Ctrl-C.

    Every setting can also come from the environment: MILLSTREAM_LOG_RETENTION_MS sets
    log.retention.ms. Options override variables, and variables override the file.
    """
    raise AssertionError("main runs serve itself; this declares its help")


def keeper(
    directory: Annotated[Path, typer.Argument(help="Directory of the store.")],
) -> None:
    """Run the keeper of a cluster on this machine until SIGTERM or Ctrl-C.

    serve --brokers and cluster start run one by themselves. The first line of output is its socket,
    the value for metadata.keeper.socket of the brokers.
    """
    raise AssertionError("main runs keeper itself; this declares its help")


def run(words: Sequence[str]) -> int:
    """Run one command line; return the exit code. Errors are one sentence, never a traceback.

    SystemExit with 143 when SIGTERM came: what a command has begun is brought to an end first.
    """
    _open_what_is_closed()
    name_standard_output()
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(TERMINATED))
    asks_nothing = not words or (len(words) == 1 and words[0] in _GROUPS)
    try:
        code = _carry_out([*words, "--help"] if asks_nothing else list(words), words)
        sys.stdout.flush()
    except UsageError as error:
        complain(_usage_sentence(error, words))
        return WRONG_USAGE
    except UnicodeEncodeError as error:
        complain(f"{error.object!r} cannot be written as {error.encoding}")
        return FAILED
    except BrokenPipeError:
        return _closed_pipe()
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except Exception as error:
        if not is_tellable(error):
            raise  # a fault of ours: where it happened is of help
        if isinstance(error, OSError) and is_of_standard_output(error):
            _closed_pipe()
        complain(sentence(error))
        return FAILED
    if asks_nothing:
        return WRONG_USAGE
    return code if isinstance(code, int) else 0


def _carry_out(words: list[str], typed: Sequence[str]) -> object:
    """Run the command that was typed; return what it returns."""
    first = words[0].partition("=")[0]
    if first in _OF_COMPLETION and not {"-h", "--help"}.intersection(words):
        # Typer's own options take no name of a shell: they would pass over it.
        from millstream.cli.completion import set_up_completion

        set_up_completion(words)
        return 0
    command = _command(typed)
    return command.main(words, prog_name="millstream", standalone_mode=False)


def _command(words: Sequence[str]) -> Any:
    """Return the command of typer that reads the words, or that completes those of a shell."""
    if _COMPLETION in os.environ:
        from millstream.cli.completion import add_completion, typed_words

        words = typed_words(os.environ)
    elif not words or words[0] not in _COMMANDS:
        return typer.main.get_command(build_list())
    command = typer.main.get_command(build(words))
    if words[:1] not in (["serve"], ["keeper"]):
        from millstream.cli.client_options import add_client_options

        add_client_options(command)
    if _COMPLETION in os.environ:
        add_completion(command)
    return command


def _usage_sentence(error: Exception, words: Sequence[str]) -> str:
    """Return a usage error with the command whose help explains it."""
    message = getattr(error, "format_message", error.__str__)()
    context = getattr(error, "ctx", None)
    if context is not None:
        path = str(context.command_path)
    else:
        depth = 2 if words and words[0] in _GROUPS else 1
        named = itertools.takewhile(lambda word: not word.startswith("-"), words[:depth])
        path = " ".join(["millstream", *(word for word in named if words[0] in _COMMANDS)])
    # Typer hands on what the checks of values raise with the name of their class before it.
    text = " ".join(str(message).split()).replace(": Value error, ", ": ", 1)
    if context is not None and hasattr(error, "possibilities"):  # there is no such option
        from millstream.cli.foreign_options import said_here

        option = str(getattr(error, "option_name", ""))
        hint = said_here(option, context.command, path)
        if hint is not None:
            text = f"No such option: {option}; {hint}"
    return f"{text.rstrip('.')} (see {path} --help)"


def _open_what_is_closed() -> None:
    """Where the shell closed a standard stream, have an empty one: what a command opens must not
    take its number, and no code has to ask whether it exists.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))


def _closed_pipe() -> int:
    """Whoever read our output has gone, as `head` does; the interpreter must not flush again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return FAILED
