"""The typer application: every command, its help, and what becomes of errors."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Final, cast

import typer

from millstream.cli import (
    serve_arguments,
)
from millstream.cli.failures import FAILED, INTERRUPTED, WRONG_USAGE, complain, sentence
from millstream.model.errors import MillstreamError

# typer carries its own copy of click in newer versions and uses the package in older ones; the base
# of BadParameter is the one name for "the command line is wrong" in both.
_USAGE_ERROR: Final = cast("type[Exception]", typer.BadParameter.__bases__[0])

_COMMANDS: Final = ("topic", "config", "produce", "consume", "group", "ingest", "log", "demo")
"""Names of commands, each the name of the module that holds it: a typer application ``app`` for a
group of commands, a function of the command's name for one command."""


def build(words: Sequence[str]) -> typer.Typer:
    """Return the application. Of the modules only the one that ``words`` begin with is imported:
    the others would cost more time than most commands take.
    """
    app = typer.Typer(
        name="millstream",
        help="A commit log that speaks the Apache Kafka protocol, and its tools.",
        no_args_is_help=True,
        context_settings={"help_option_names": ["-h", "--help"]},
        rich_markup_mode=None,
    )
    app.command("serve")(serve)
    wanted = words[:1] if words and words[0] in _COMMANDS else _COMMANDS
    for name in wanted:
        module = import_module(f"millstream.cli.{name}")
        if hasattr(module, "app"):
            app.add_typer(module.app, name=name)
        else:
            app.command(name)(getattr(module, name))
    return app


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
) -> None:
    """Run a broker until SIGTERM or Ctrl-C.

    Every setting can also come from the environment: MILLSTREAM_LOG_RETENTION_MS sets
    log.retention.ms. Options count more than variables, and variables more than the file.
    """
    raise AssertionError("main runs serve itself; this declares its help")


def run(words: Sequence[str]) -> int:
    """Run one command line; return the exit code. Errors are one sentence, never a traceback."""
    try:
        code = typer.main.get_command(build(words)).main(
            list(words), prog_name="millstream", standalone_mode=False
        )
        sys.stdout.flush()
    except _USAGE_ERROR as error:
        complain(_usage_sentence(error))
        return WRONG_USAGE
    except BrokenPipeError:
        return _closed_pipe()
    except (MillstreamError, OSError) as error:
        complain(sentence(error))
        return FAILED
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    return code if isinstance(code, int) else 0


def _usage_sentence(error: BaseException) -> str:
    """Return a usage error with the command whose help explains it."""
    message = getattr(error, "format_message", error.__str__)()
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "millstream"
    return f"{' '.join(str(message).split()).rstrip('.')} (see {path} --help)"


def _closed_pipe() -> int:
    """Whoever read our output has gone, as `head` does; the interpreter must not flush again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return FAILED
