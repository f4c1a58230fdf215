"""`millstream token`: delegation tokens, with which a program authenticates in the name of a user
without its password (KIP-48).

The secret of a token, its HMAC, is shown once, when it is made. The other commands name a token by
its id, and ask the brokers for the rest: a secret on a command line is read by every process of the
machine.
"""

from __future__ import annotations

import base64
import contextlib
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final, TextIO

import typer

from millstream.cli.arguments import (
    DEFAULT_BOOTSTRAP,
    AsJson,
    Bootstrap,
    Timeout,
    UsageError,
    duration_ms,
    open_admin,
)
from millstream.cli.client_options import given_settings
from millstream.cli.failures import CommandFailedError
from millstream.cli.full_disks import naming
from millstream.cli.output import Row, counted, print_done, print_json, print_note, print_rows
from millstream.client import Admin
from millstream.client.core.admin.tokens import DelegationToken
from millstream.model.principal import parse_principal
from millstream.security.sasl.scram_credential import SCRAM_MECHANISMS

app = typer.Typer(help="Delegation tokens.", no_args_is_help=True)

_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
_HEADINGS: Final = {
    "token_id": "token",
    "owner": "owner",
    "requester": "requested by",
    "renewers": "renewers",
    "issued": "made",
    "expires": "holds until",
    "max": "renewable until",
}

TokenId = Annotated[str, typer.Argument(metavar="TOKEN", help="The id of a token.")]


@app.command()
def create(
    owner: Annotated[
        str | None,
        typer.Option("--owner", help="Owner, for example User:ann; by default the current user."),
    ] = None,
    renewer: Annotated[
        list[str] | None,
        typer.Option(
            "--renewer", help="User who may renew it, for example User:ann; may be repeated."
        ),
    ] = None,
    lifetime: Annotated[
        str | None,
        typer.Option(
            "--lifetime", metavar="TIME", help="How long it may be renewed, for example 7d."
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="Write client settings to a new file that only you can read."
        ),
    ] = None,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = None,
) -> None:
    """Create a token. Its secret is shown only here, or written to --output."""
    owners = [_principal(owner)] if owner is not None else [None]
    renewers = [_principal(each) for each in renewer or ()]
    lifetime_ms = None if lifetime is None else duration_ms(lifetime, "--lifetime")
    with contextlib.ExitStack() as stack:
        # The file first: a secret that cannot be written is lost.
        file = None if output is None else stack.enter_context(_new_file(output))
        with open_admin(bootstrap, timeout) as admin:
            token = admin.create_delegation_token(
                owner=owners[0], renewers=renewers, max_lifetime_ms=lifetime_ms
            )
        secret = base64.b64encode(token.hmac).decode()
        if file is not None:
            file.write(_settings(token.token_id, secret, _mechanism()))
    if output is not None:
        print_done(f"made: {token.token_id}, in {output}", "made", token.token_id, str(output))
        return
    row = {"token_id": token.token_id, "hmac": secret, **_row(token)}
    if as_json:
        print_json(row)
    else:
        shown = {"token_id": "token", "hmac": "HMAC", **_HEADINGS}
        print_rows([row], {key: shown[key] for key in ("token_id", "hmac", "owner", "expires")})


@app.command()
def renew(
    token_id: TokenId,
    period: Annotated[
        str | None,
        typer.Option(
            "--period",
            metavar="TIME",
            help="For how long, for example 1d; by default the brokers' setting.",
        ),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = None,
) -> None:
    """Extend a token. Its owner and its renewers may do this."""
    period_ms = None if period is None else duration_ms(period, "--period")
    with open_admin(bootstrap, timeout) as admin:
        token = _find(admin, token_id)
        until = admin.renew_delegation_token(token.hmac, period_ms=period_ms)
    print_done(f"{token_id} holds until {_moment(until)}", "renewed", token_id, _moment(until))


@app.command()
def expire(
    token_id: TokenId,
    period: Annotated[
        str | None,
        typer.Option("--in", metavar="TIME", help="When, for example 1h; by default now."),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = None,
) -> None:
    """Expire a token. Its owner and its renewers may do this.

    Connections that authenticated with it stay open until their session ends (the token's end when
    they connected, or connections.max.reauth.ms).
    """
    period_ms = None if period is None else duration_ms(period, "--in")
    with open_admin(bootstrap, timeout) as admin:
        token = _find(admin, token_id)
        until = admin.expire_delegation_token(token.hmac, period_ms=period_ms)
    told = "has ended" if period_ms is None else f"ends at {_moment(until)}"
    print_done(f"{token_id} {told}", "expired", token_id, _moment(until))


@app.command("list")
def list_tokens(
    owner: Annotated[
        list[str] | None,
        typer.Option("--owner", help="Owner or renewer; may be repeated."),
    ] = None,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = None,
) -> None:
    """Show tokens, without their secrets."""
    owners = [_principal(each) for each in owner] if owner else None
    with open_admin(bootstrap, timeout) as admin:
        found = admin.describe_delegation_tokens(owners)
    rows = [_row(each) for each in sorted(found, key=lambda each: each.issued_ms)]
    if as_json:
        print_json(rows)
    elif rows:
        print_rows(rows, _HEADINGS)
    else:
        print_note(counted(0, "token"))


def _find(admin: Admin, token_id: str) -> DelegationToken:
    for each in admin.describe_delegation_tokens():
        if each.token_id == token_id:
            return each
    raise CommandFailedError(f"there is no token {token_id} that this user may see")


def _row(token: DelegationToken) -> Row:
    return {
        "token_id": token.token_id,
        "owner": token.owner,
        "requester": token.requester,
        "renewers": ",".join(token.renewers) or None,
        "issued": _moment(token.issued_ms),
        "expires": _moment(token.expires_ms),
        "max": _moment(token.max_ms),
    }


def _moment(time_ms: int) -> str:
    try:
        moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return str(time_ms)  # a lifetime beyond the year 9999
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _principal(text: str) -> str:
    try:
        return str(parse_principal(text))
    except ValueError:
        raise UsageError(f"{text!r} is not a principal such as User:ann") from None


@contextlib.contextmanager
def _new_file(path: Path) -> Iterator[TextIO]:
    """Open a file that was not there, for its user alone; it goes again if anything fails."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise CommandFailedError(f"{path} already exists") from None
    try:
        with naming(path), os.fdopen(descriptor, "w", encoding="utf-8") as file:
            yield file
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def _mechanism() -> str:
    """Return the SCRAM mechanism with which this command has authenticated, since the broker has
    enabled that one; for any other way of authenticating, SCRAM-SHA-256.
    """
    own = given_settings().get("sasl.mechanism", "").upper()
    return own if own in SCRAM_MECHANISMS else "SCRAM-SHA-256"


def _settings(token_id: str, secret: str, mechanism: str) -> str:
    return (
        "# Beside bootstrap.servers, security.protocol and ssl.truststore.location of the client;\n"
        "# sasl.mechanism has to be among the brokers' sasl.enabled.mechanisms.\n"
        f"sasl.mechanism={mechanism}\n"
        f'sasl.jaas.config={_MODULE} required username="{token_id}" password="{secret}" '
        'tokenauth="true";\n'
    )
