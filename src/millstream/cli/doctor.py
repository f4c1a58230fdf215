"""`millstream doctor`: what is wrong, why, and the command that mends it."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from millstream.cli.arguments import (
    DEFAULT_BOOTSTRAP,
    AsJson,
    Bootstrap,
    chosen_bootstrap,
    duration_ms,
)
from millstream.cli.client_options import settings_of
from millstream.cli.cluster import doctor as cluster_doctor
from millstream.cli.doctor_findings import all_, disk, group, settings, transactions
from millstream.cli.failures import FAILED
from millstream.cli.output import print_json, print_rows
from millstream.client.core.settings import AdminSettings, read_settings
from millstream.client.security import open_security
from millstream.client.settings import ClientSettings
from millstream.inspection.reachability import Outcome, look_at

_PATIENCE: Final = "5s"

app = typer.Typer(
    help="Find out what is wrong: why a client cannot connect, what is at risk in a cluster, why a "
    "group rebalances, what holds readers of transactions, why a disk fills, which settings are "
    "unwise.",
    no_args_is_help=True,
)
app.command("cluster")(cluster_doctor)
app.command("group")(group)
app.command("transactions")(transactions)
app.command("disk")(disk)
app.command("settings")(settings)
app.command("all")(all_)


@app.command()
def connect(
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Annotated[
        str, typer.Option("--timeout", help="How long each step may take.")
    ] = _PATIENCE,
    as_json: AsJson = False,
) -> None:
    """Connect step by step, and report which step fails and how to fix it.

    The steps for each address are name, port, TLS, authentication, versions, metadata. The
    addresses that the brokers advertise are checked too, because clients use them after the first
    answer. The exit code is 1 if a step fails.
    """
    given = settings_of(AdminSettings) | {"bootstrap.servers": chosen_bootstrap(bootstrap)}
    read = read_settings(AdminSettings, given)
    patience_ms = round(duration_ms(timeout, "--timeout"))
    how = ClientSettings(
        bootstrap_servers=read.bootstrap_servers,
        client_id="millstream-doctor",
        connect_timeout_ms=patience_ms,
        request_timeout_ms=patience_ms,
        security=open_security(read),
    )
    rows = [
        {
            "address": str(step.address),
            "broker": step.broker,
            "step": step.name,
            "outcome": step.outcome.value,
            "finding": step.sentence,
            "remedy": step.remedy,
        }
        for step in look_at(how, read.security_protocol)
    ]
    if as_json:
        print_json(rows)
    else:
        print_rows(rows, {key: key.upper() for key in rows[0]})
    if any(row["outcome"] == Outcome.FAILED.value for row in rows):
        raise typer.Exit(FAILED)
