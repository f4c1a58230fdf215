"""The typer application: every command, its help, and what becomes of errors."""

from __future__ import annotations

import itertools
import os
import signal
import sys
from collections.abc import Sequence
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

_COMMANDS: Final = (
    "topic",
    "config",
    "acl",
    "cert",
    "quota",
    "token",
    "user",
    "produce",
    "consume",
    "group",
    "txn",
    "cluster",
    "check",
    "doctor",
    "zookeeper",
    "ingest",
    "log",
    "log-dirs",
    "demo",
    "load",
    "audit",
    "audit-log",
    "repair",
    "maintain",
    "lag",
    "dlq",
    "pipeline",
    "report",
    "sql",
    "bench",
    "console",
)
"""All commands: one that is no group is a module with a function of its own name."""

_COMPLETION: Final = "_MILLSTREAM_COMPLETE"
"""Set by a shell that wants words completed."""


def build(words: Sequence[str]) -> typer.Typer:
    """Return the application. Of the modules only the one that ``words`` begin with is imported:
    the others would cost more time than most commands take.
    """
    app = typer.Typer(
        name="millstream",
        context_settings={"help_option_names": ["-h", "--help"]},
        rich_markup_mode=None,
    )
    app.callback()(millstream)
    app.command("serve")(serve)
    app.command("keeper")(keeper)
    wanted = words[:1] if words and words[0] in _COMMANDS else _COMMANDS
    for name in wanted:
        module = import_module(f"millstream.cli.{name.replace('-', '_')}")
        if name in _GROUPS:
            app.add_typer(module.app, name=name)
        else:
            app.command(name)(getattr(module, name.replace("-", "_")))
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
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(TERMINATED))
    asks_nothing = not words or (len(words) == 1 and words[0] in _GROUPS)
    try:
        code = _command(words).main(
            [*words, "--help"] if asks_nothing else list(words),
            prog_name="millstream",
            standalone_mode=False,
        )
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
        complain(sentence(error))
        return FAILED
    if asks_nothing:
        return WRONG_USAGE
    return code if isinstance(code, int) else 0


def _command(words: Sequence[str]) -> Any:
    """Return the command of typer that reads the words, or that completes those of a shell."""
    if _COMPLETION in os.environ:
        from millstream.cli.completion import add_completion, typed_words

        words = typed_words(os.environ)
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
