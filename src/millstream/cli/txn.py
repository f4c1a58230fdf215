"""`millstream txn`: transactions, and ending those that hang."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Annotated, Final

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
from millstream.cli.failures import FAILED, CommandFailedError, complain, sentence
from millstream.cli.named_partitions import named_partitions
from millstream.cli.output import Row, human_duration, print_done, print_json, print_rows
from millstream.client import Admin
from millstream.client.core.admin.producers import TransactionDescription
from millstream.client.core.admin.transactions import OpenTransaction
from millstream.client.errors import UnsupportedVersionError
from millstream.model.topic import TopicPartition

app = typer.Typer(help="Transactions: list, describe, find-hanging, abort.", no_args_is_help=True)

_MAX_TRANSACTION_TIMEOUT: Final = "15m"


@app.command("list")
def list_(
    states: Annotated[
        list[str] | None,
        typer.Option(
            "--state", help="Only transactions in this state, for example Ongoing; may be repeated."
        ),
    ] = None,
    producer_ids: Annotated[
        list[int] | None,
        typer.Option("--producer-id", help="Only transactions of this producer; may be repeated."),
    ] = None,
    longer_than: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Only transactions that have been open for longer, for example 15m.",
        ),
    ] = None,
    matching: Annotated[
        str | None,
        typer.Option(metavar="REGEX", help="Only ids that match this regular expression (RE2)."),
    ] = None,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = None,
) -> None:
    """List transactional ids and the states of their transactions."""
    least_ms = -1 if longer_than is None else duration_ms(longer_than, "--longer-than")
    with open_admin(bootstrap, timeout) as admin:
        try:
            found = admin.list_transactions(
                states=states or (),
                producer_ids=producer_ids or (),
                min_duration_ms=least_ms,
                pattern=matching,
            )
        except ValueError as error:
            raise UsageError(str(error)) from None
    rows: list[Row] = [
        {
            "transactional_id": each.transactional_id,
            "producer_id": each.producer_id,
            "state": each.state,
        }
        for each in found
    ]
    if as_json:
        print_json(rows)
    else:
        print_rows(
            rows,
            {"transactional_id": "transactional id", "producer_id": "producer", "state": "state"},
        )


@app.command()
def describe(
    names: Annotated[list[str], typer.Argument(metavar="ID", help="Transactional ids.")],
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = None,
) -> None:
    """Show the state of transactions, since when they are open, and their partitions."""
    with open_admin(bootstrap, timeout) as admin:
        outcomes = admin.describe_transactions(names)
    now_ms = int(time.time() * 1000)
    rows = [_described(each.get(), now_ms) for each in outcomes.values() if each.error is None]
    if as_json:
        print_json(rows)
    else:
        print_rows(
            [{**row, "open": _open_for(row["open_seconds"])} for row in rows],
            {
                "transactional_id": "transactional id",
                "producer_id": "producer",
                "producer_epoch": "epoch",
                "state": "state",
                "timeout_ms": "timeout ms",
                "open": "open for",
                "partitions": "partitions",
            },
        )
    for name, error in outcomes.errors.items():
        said = sentence(error)
        complain(said if name in said else f"{name}: {said}")
    if outcomes.errors:
        raise typer.Exit(FAILED)


def _described(each: TransactionDescription, now_ms: int) -> Row:
    is_open = each.start_time_ms >= 0
    return {
        "transactional_id": each.transactional_id,
        "producer_id": each.producer_id,
        "producer_epoch": each.producer_epoch,
        "state": each.state,
        "timeout_ms": each.timeout_ms,
        "open_seconds": max(now_ms - each.start_time_ms, 0) / 1000 if is_open else None,
        "partitions": ",".join(map(str, sorted(each.partitions))) or None,
    }


def _open_for(seconds: object) -> str | None:
    return human_duration(seconds) if isinstance(seconds, float) else None


@app.command("find-hanging")
def find_hanging(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TOPIC[:PARTITION]",
            help="The topics or partitions.",
            show_default="all partitions",
        ),
    ] = None,
    max_transaction_timeout: Annotated[
        str,
        typer.Option(
            metavar="TIME",
            help="transaction.max.timeout.ms of the brokers; younger transactions are not "
            "reported.",
        ),
    ] = _MAX_TRANSACTION_TIMEOUT,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = None,
) -> None:
    """Find open transactions that no coordinator knows. They block readers of committed records for
    ever.

    Each line names what `millstream txn abort` needs: the partition and the start offset.
    """
    limit_ms = duration_ms(max_transaction_timeout, "--max-transaction-timeout")
    with open_admin(bootstrap, timeout) as admin:
        topics = words or admin.list_topics(include_internal=True)
        topic_partitions = named_partitions(admin, topics)
        found = admin.find_hanging_transactions(
            topic_partitions, max_transaction_timeout_ms=limit_ms
        )
    now_ms = int(time.time() * 1000)
    rows: list[Row] = [
        {
            "partition": f"{each.topic_partition.topic}:{each.topic_partition.partition}",
            "start_offset": each.producer.transaction_start_offset,
            "producer_id": each.producer.producer_id,
            "producer_epoch": each.producer.producer_epoch,
            "coordinator_epoch": each.producer.coordinator_epoch,
            "last_seconds": max(now_ms - each.producer.last_timestamp_ms, 0) / 1000,
        }
        for each in found
    ]
    if as_json:
        print_json(rows)
    else:
        print_rows(
            rows,
            {
                "partition": "partition",
                "start_offset": "start offset",
                "producer_id": "producer",
                "producer_epoch": "epoch",
                "coordinator_epoch": "coordinator epoch",
                "last_seconds": "last record s ago",
            },
        )


@app.command()
def abort(
    partition: Annotated[
        str | None,
        typer.Argument(metavar="TOPIC:PARTITION", help="The partition.", show_default=False),
    ] = None,
    start_offset: Annotated[
        int | None, typer.Option(min=0, help="Where the hanging transaction begins.")
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(
            "--id",
            metavar="ID",
            help="Instead: fence the producer with this id, and abort its open transaction.",
        ),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = None,
) -> None:
    """Abort a transaction: a hanging one in its partition, or the one of a transactional id.

    A transaction that a coordinator knows is refused, because its other partitions would stay open:
    use --id for it.
    """
    if (name is None) == (partition is None) or (partition is None) != (start_offset is None):
        raise UsageError("give TOPIC:PARTITION with --start-offset, or --id")
    with open_admin(bootstrap, timeout) as admin:
        if name is not None:
            _check_known(admin, name)
            fenced = admin.fence_producers([name])[name].get()
            told = f"fenced {name}: producer {fenced.producer_id} is at epoch {fenced.epoch}"
            print_done(told, "fenced", name, fenced.producer_id, fenced.epoch)
            return
        assert partition is not None
        assert start_offset is not None
        topic, colon, index = partition.rpartition(":")
        if not colon or not index.isdecimal():
            raise UsageError(f"{partition!r} is not TOPIC:PARTITION")
        found = admin.find_open_transaction(TopicPartition(topic, int(index)), start_offset)
        _refuse_known(admin, found)
        admin.abort_transaction(
            found.topic_partition,
            producer_id=found.producer.producer_id,
            producer_epoch=found.producer.producer_epoch,
            coordinator_epoch=found.producer.coordinator_epoch,
        )
    print_done(
        f"aborted the transaction of producer {found.producer.producer_id} in {partition}",
        "aborted",
        topic,
        int(index),
        found.producer.producer_id,
    )


def _check_known(admin: Admin, name: str) -> None:
    """Raise KafkaError for an id that its coordinator does not know: fencing would create it."""
    with suppress(UnsupportedVersionError):  # Brokers before Apache Kafka 3.0 cannot tell.
        admin.describe_transactions([name])[name].get()


def _refuse_known(admin: Admin, found: OpenTransaction) -> None:
    """Raise CommandFailedError if a coordinator knows the transaction."""
    listed = admin.list_transactions(producer_ids=[found.producer.producer_id])
    names = [each.transactional_id for each in listed]
    for name, described in admin.describe_transactions(names).items():
        if described.error is None and found.topic_partition in described.get().partitions:
            raise CommandFailedError(
                f"the transaction is not hanging, it belongs to {name!r}: abort it with --id {name}"
            )
