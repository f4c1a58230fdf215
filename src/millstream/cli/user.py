"""`millstream user`: users that authenticate with SCRAM, and their passwords.

A password is read from a file, the environment or the terminal, never from the command line, which
every process of the machine may read. The first user of a broker whose listeners all ask for one is
added to the store itself, while nothing runs (``--data-dir`` or ``--zookeeper``).
"""

from __future__ import annotations

import getpass
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, TypeAlias

import typer

from millstream.cli.arguments import (
    DEFAULT_BOOTSTRAP,
    AsJson,
    Bootstrap,
    Timeout,
    UsageError,
    open_admin,
)
from millstream.cli.failures import FAILED, CommandFailedError, complain, sentence
from millstream.cli.output import Row, counted, print_done, print_json, print_note, print_rows
from millstream.client.core.admin.access import ScramMechanism
from millstream.security.sasl.scram_credential import MAX_ITERATIONS, MIN_ITERATIONS

app = typer.Typer(help="Users that authenticate with SCRAM.", no_args_is_help=True)

PASSWORD_VARIABLE: Final = "MILLSTREAM_USER_PASSWORD"
ZOOKEEPER_DIGEST_VARIABLE: Final = "MILLSTREAM_ZOOKEEPER_DIGEST"
"""``user:password``, the brokers' `zookeeper.auth.digest`."""
DEFAULT_ITERATIONS: Final = 8192

_NAMES: Final = {each.name.replace("_", "-"): each for each in ScramMechanism}
_HEADINGS: Final = {"user": "user", "mechanism": "mechanism", "iterations": "iterations"}

Name = Annotated[str, typer.Argument(metavar="NAME", help="The user.")]
Mechanisms = Annotated[
    list[str] | None,
    typer.Option(
        "--mechanism",
        "-m",
        help="SCRAM-SHA-256 or SCRAM-SHA-512; may be repeated; by default both.",
    ),
]


@app.command("list")
def list_users(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="Names of users.")
    ] = None,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = None,
) -> None:
    """Show users, their mechanisms and iterations; passwords are not stored anywhere."""
    with open_admin(bootstrap, timeout) as admin:
        outcomes = admin.describe_user_scram_credentials(names or None)
    rows: list[Row] = []
    for user, outcome in sorted(outcomes.items()):
        if outcome.error is not None:
            complain(sentence(outcome.error))
            continue
        for each in outcome.get():
            mechanism = each.mechanism.name.replace("_", "-")
            rows.append({"user": user, "mechanism": mechanism, "iterations": each.iterations})
    if as_json:
        print_json(rows)
    elif rows:
        print_rows(rows, _HEADINGS)
    else:
        print_note(counted(0, "user"))
    if outcomes.errors:
        raise typer.Exit(FAILED)


_Iterations: TypeAlias = Annotated[int, typer.Option(help="Iterations of the password hash.")]
_PasswordFile: TypeAlias = Annotated[
    Path | None,
    typer.Option("--password-file", help="A file whose first line is the password."),
]
_DataDir: TypeAlias = Annotated[
    Path | None,
    typer.Option("--data-dir", help="Add the user to the data directory of a stopped broker."),
]
_Zookeeper: TypeAlias = Annotated[
    str | None,
    typer.Option("--zookeeper", help="Add the user to the ZooKeeper of a stopped cluster."),
]
_ZkTlsConfigFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--zk-tls-config-file",
        help="The brokers' zookeeper.ssl.* settings, for --zookeeper over TLS.",
    ),
]


@app.command()
def add(
    name: Name,
    mechanism: Mechanisms = None,
    iterations: _Iterations = DEFAULT_ITERATIONS,
    password_file: _PasswordFile = None,
    data_dir: _DataDir = None,
    zookeeper: _Zookeeper = None,
    zk_tls_config_file: _ZkTlsConfigFile = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = None,
) -> None:
    """Add a user, or change its password.

    The password is read from the first line of --password-file, from MILLSTREAM_USER_PASSWORD, or
    from a prompt. If the brokers use zookeeper.auth.digest, --zookeeper needs the same value in
    MILLSTREAM_ZOOKEEPER_DIGEST; otherwise anybody who can connect to ZooKeeper may change the user.

    """
    mechanisms = _mechanisms(mechanism)
    if not name:
        raise typer.BadParameter("it is empty", param_hint="NAME")
    if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
        raise typer.BadParameter(
            f"it takes {MIN_ITERATIONS} to {MAX_ITERATIONS}, not {iterations}",
            param_hint="--iterations",
        )
    if data_dir is not None and zookeeper is not None:
        raise UsageError("--data-dir and --zookeeper cannot be combined")
    if zk_tls_config_file is not None and zookeeper is None:
        raise UsageError("--zk-tls-config-file needs --zookeeper")
    password = read_password(password_file, os.environ)
    if data_dir is not None or zookeeper is not None:
        from millstream.cli.user_store import add_to_directory, add_to_zookeeper

        wanted = [each.name.replace("_", "-") for each in mechanisms]
        if data_dir is not None:
            add_to_directory(data_dir, name, password, wanted, iterations)
        else:
            digest = os.environ.get(ZOOKEEPER_DIGEST_VARIABLE) or None
            add_to_zookeeper(
                zookeeper or "",
                name,
                password,
                wanted,
                iterations,
                digest=digest,
                tls_file=zk_tls_config_file,
            )
        print_done(f"added: {name}", "added", "user", name)
        return
    with open_admin(bootstrap, timeout) as admin:
        for each in mechanisms:
            outcomes = admin.alter_user_scram_credentials(
                {name: password}, mechanism=each, iterations=iterations
            )
            outcomes[name].get()
    print_done(f"added: {name}", "added", "user", name)


@app.command()
def remove(
    name: Name,
    mechanism: Mechanisms = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = None,
) -> None:
    """Remove a user's passwords; its access rules and quotas remain."""
    with open_admin(bootstrap, timeout) as admin:
        found = admin.describe_user_scram_credentials([name])[name].get()
        mechanisms = _mechanisms(mechanism) if mechanism else [each.mechanism for each in found]
        for each in mechanisms:
            admin.alter_user_scram_credentials({name: None}, mechanism=each)[name].get()
    print_done(f"removed: {name}", "removed", "user", name)


def _mechanisms(names: list[str] | None) -> list[ScramMechanism]:
    for name in names or ():
        if name.upper() not in _NAMES:
            raise typer.BadParameter(
                f"{name!r} is not {' or '.join(_NAMES)}", param_hint="--mechanism"
            )
    return [_NAMES[name.upper()] for name in names or _NAMES]


def read_password(file: Path | None, environment: Mapping[str, str]) -> str:
    """Return the password from where it is given; CommandFailedError for none."""
    if file is not None:
        password = file.read_text(encoding="utf-8").partition("\n")[0].rstrip("\r")
    elif PASSWORD_VARIABLE in environment:
        password = environment[PASSWORD_VARIABLE]
    elif sys.stdin.isatty():
        password = getpass.getpass("password: ")
        if password and getpass.getpass("again: ") != password:
            raise CommandFailedError("the two passwords differ")
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    if not password:
        raise CommandFailedError("the password is empty")
    return password
