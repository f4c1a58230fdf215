"""`millstream check`: whether a cluster keeps what it promises."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import typer

from millstream.cli.arguments import (
    DEFAULT_BOOTSTRAP,
    AsJson,
    Bootstrap,
    Timeout,
    UsageError,
    bootstrap_servers,
    check_topic,
    duration_ms,
)
from millstream.cli.client_options import settings_of
from millstream.cli.failures import FAILED, complain
from millstream.cli.full_disks import naming
from millstream.cli.interruption import repeated_signals_ignored
from millstream.cli.output import is_for_a_person, print_cells, print_json, print_note
from millstream.client.core.consumer.settings import ConsumerSettings
from millstream.client.core.settings import AdminSettings, ProducerSettings

if TYPE_CHECKING:
    from millstream.history.run import Result

app = typer.Typer(help="Check the guarantees of a cluster: history.", no_args_is_help=True)

_ACKS: Final = ("all", "1", "0")


@app.callback()
def check() -> None:
    """Check whether a cluster keeps what it promises."""


_Topic: TypeAlias = Annotated[
    str | None,
    typer.Option("--topic", "-t", help="An existing topic; by default one is created."),
]
_Partitions: TypeAlias = Annotated[
    int, typer.Option("--partitions", "-p", min=1, help="Of a topic that is made.")
]
_ReplicationFactor: TypeAlias = Annotated[
    int,
    typer.Option(
        "--replication-factor",
        "-r",
        min=-1,
        help="Of a topic that is made.",
        show_default="the brokers' default",
    ),
]
_Rate: TypeAlias = Annotated[
    float, typer.Option(min=0.1, help="Records per second of each producer.")
]
_Transactions: TypeAlias = Annotated[
    bool,
    typer.Option("--transactions", help="Use transactions, and abort some of them."),
]
_Fault: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        metavar="COMMAND",
        help="A shell command that causes a fault and repairs it; may be repeated.",
    ),
]
_FaultEvery: TypeAlias = Annotated[
    str, typer.Option(metavar="TIME", help="Pause before each fault.")
]
_Report: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Write the report to FILE as JSON, and the summary to FILE.txt."
    ),
]


@app.command()
def history(
    topic: _Topic = None,
    partitions: _Partitions = 3,
    replication_factor: _ReplicationFactor = -1,
    producers: Annotated[int, typer.Option(min=1, help="Producers.")] = 2,
    readers: Annotated[
        int, typer.Option(min=0, help="Number of members of the group that reads.")
    ] = 2,
    seconds: Annotated[float, typer.Option(min=1, help="How long the load runs.")] = 60.0,
    rate: _Rate = 200.0,
    acks: Annotated[str, typer.Option(help="all, 1 or 0.")] = "all",
    idempotent: Annotated[bool, typer.Option(help="Use idempotent producers.")] = True,
    transactions: _Transactions = False,
    fault: _Fault = None,
    fault_every: _FaultEvery = "15s",
    report: _Report = None,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = None,
) -> None:
    """Write and read under faults, and report whether records were lost, duplicated, reordered or
    undone.

    Faults run one after the other while producers send, a group reads and commits, and a client
    lists offsets; at the end everything is read. The exit code is 1 if a guarantee was violated.

    """
    from millstream.history.run import Plan, run

    if acks not in _ACKS:
        raise typer.BadParameter(f"{acks!r} is not one of {', '.join(_ACKS)}", param_hint="--acks")
    if acks != "all" and (idempotent or transactions):
        raise UsageError(f"--acks {acks} needs --no-idempotent, and no --transactions")
    servers = bootstrap_servers(bootstrap, timeout)
    if topic is not None:
        check_topic(bootstrap, topic)
    plan = Plan(
        settings=_settings(AdminSettings, servers),
        producing=_settings(ProducerSettings, servers),
        reading=_settings(ConsumerSettings, servers),
        topic=topic,
        partitions=partitions,
        replication_factor=replication_factor,
        producers=producers,
        readers=readers,
        seconds=seconds,
        rate=rate,
        acks=acks,
        is_idempotent=idempotent,
        is_transactional=transactions,
        faults=tuple(fault or ()),
        fault_every_s=duration_ms(fault_every, "--fault-every") / 1000,
    )
    with repeated_signals_ignored():
        result = run(plan, complain)
    if report is not None:
        _write(result, report)
    _show(result, as_json=as_json)
    if result.anomalies:
        raise typer.Exit(FAILED)


def _write(result: Result, report: Path) -> None:
    from millstream.history.report import as_json, as_text

    text = json.dumps(as_json(result), indent=2, ensure_ascii=False)
    with naming(report):
        report.write_text(text + "\n", encoding="utf-8")
    summary = report.with_name(f"{report.name}.txt")
    with naming(summary):
        summary.write_text("\n".join(as_text(result)) + "\n", encoding="utf-8")


def _show(result: Result, *, as_json: bool) -> None:
    from millstream.history.report import as_json as json_of
    from millstream.history.report import as_rows, as_text, verdict

    if as_json:
        print_json(json_of(result))
    elif is_for_a_person():
        print("\n".join(as_text(result)))
    else:
        for row in as_rows(result):
            print_cells(row)
        for line in verdict(result):
            print_note(line)


def _settings(
    kind: type[AdminSettings | ProducerSettings | ConsumerSettings], servers: str
) -> dict[str, object]:
    """Return what the options of the client say for one kind of client."""
    return {"client.id": "millstream-check", **settings_of(kind), "bootstrap.servers": servers}
