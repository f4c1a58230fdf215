"""`millstream doctor group`, `transactions`, `disk`, `settings` and `all`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from typing import Annotated, Final

import typer

from millstream.cli.arguments import (
    DEFAULT_BOOTSTRAP,
    AsJson,
    Bootstrap,
    Timeout,
    duration_ms,
    open_admin,
)
from millstream.cli.failures import FAILED
from millstream.cli.output import Row, print_json, print_rows
from millstream.client import Admin
from millstream.client.doctor import Severity, diagnose
from millstream.client.replicas import view_cluster
from millstream.client.throttle import limited_brokers
from millstream.inspection.broker_settings_health import judge_settings
from millstream.inspection.disk_facts import look_at_disks
from millstream.inspection.disk_health import beyond_the_disk, judge_disk
from millstream.inspection.findings import Finding, not_told, ranked
from millstream.inspection.group_changes import judge_changes
from millstream.inspection.group_facts import look_at_group, watch_group
from millstream.inspection.group_health import judge_group
from millstream.inspection.settings_facts import look_at_settings
from millstream.inspection.transaction_facts import look_at_transactions
from millstream.inspection.transaction_health import judge_transactions
from millstream.model.errors import ErrorCode, KafkaError, MillstreamError

SIGNS: Final = {Severity.BROKEN: "broken", Severity.RISK: "at risk", Severity.NOTE: "note"}
_LOOK_EVERY_S: Final = 1.0
_STARTS: Final = "millstream serve"
"""The one command in remedies that connects to nothing."""


def group(
    name: Annotated[str, typer.Argument(metavar="GROUP", help="A consumer group.")],
    watch: Annotated[
        str,
        typer.Option(
            "--watch", metavar="TIME", help="How long to watch for changes; 0s to skip this."
        ),
    ] = "5s",
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = None,
) -> None:
    """Report why a group rebalances or makes no progress.

    The group is inspected once, and then watched for members that join and leave, changes of state,
    moved partitions, growing lag and stuck members. The exit code is 1 if something is broken now.

    """
    seconds = duration_ms(watch, "--watch") / 1000
    with open_admin(bootstrap, timeout) as admin:
        sights = list(watch_group(admin, name, seconds, _LOOK_EVERY_S))
    _tell([*judge_group(sights[-1]), *judge_changes(sights)], as_json, bootstrap)


def transactions(
    topics: Annotated[
        list[str] | None,
        typer.Argument(metavar="TOPIC", help="The topics.", show_default="all"),
    ] = None,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = None,
) -> None:
    """Report which transactions hold back the last stable offset, and with it readers of committed
    records.

    Shows the producer, since when, the transactional id, the coordinator, and what ends the
    transaction. The exit code is 1 if something is broken now.
    """
    with open_admin(bootstrap, timeout) as admin:
        sight = look_at_transactions(admin, topics or ())
    _tell(judge_transactions(sight), as_json, bootstrap)


def disk(
    as_json: AsJson = False, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, timeout: Timeout = None
) -> None:
    """Report why the disks of the brokers fill.

    Shows the largest topics, retention that deletes nothing, segments that are still written to,
    time stamps in the future, compaction, moves. The exit code is 1 if something is broken now.
    """
    with open_admin(bootstrap, timeout) as admin:
        sight = look_at_disks(admin)
    _tell(judge_disk(sight), as_json, bootstrap)


def settings(
    as_json: AsJson = False, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, timeout: Timeout = None
) -> None:
    """Report which settings of topics and brokers are risky, and why.

    The exit code is 1 if something is broken now.
    """
    with open_admin(bootstrap, timeout) as admin:
        found = _of_settings(admin)
    _tell(found, as_json, bootstrap)


def all_(
    as_json: AsJson = False, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, timeout: Timeout = None
) -> None:
    """Check everything: the cluster, every group, transactions, disks and settings.

    Groups are inspected once and not watched. The exit code is 1 if something is broken now.
    """
    with open_admin(bootstrap, timeout) as admin:
        found: list[Finding] = []
        for about, look in (
            ("the cluster", _of_cluster),
            ("groups", _of_groups),
            ("transactions", lambda a: judge_transactions(look_at_transactions(a))),
            ("disks", lambda a: judge_disk(look_at_disks(a))),
            ("settings", _of_settings),
        ):
            try:
                found += look(admin)
            except MillstreamError as error:  # one API that is refused does not hide the others
                found.append(not_told("cluster", about, str(error)))
    _tell(ranked(found), as_json, bootstrap)


def _of_cluster(admin: Admin) -> list[Finding]:
    view = view_cluster(admin)
    try:
        moves = list(admin.list_partition_reassignments())
    except KafkaError as error:
        if error.error is not ErrorCode.NOT_CONTROLLER:
            raise
        moves = None
    return [
        Finding(each.severity, "cluster", each.sentence, "millstream cluster describe")
        for each in diagnose(view, moves, limited_brokers(admin, view.brokers))
    ]


def _of_groups(admin: Admin) -> list[Finding]:
    found: list[Finding] = []
    for each in admin.list_groups():
        if each.type == "share":
            continue
        try:
            found += judge_group(look_at_group(admin, each.group))
        except KafkaError as error:
            if error.error is not ErrorCode.GROUP_ID_NOT_FOUND:  # deleted meanwhile
                found.append(not_told(each.group, "the state of the group", str(error)))
    return found


def _of_settings(admin: Admin) -> list[Finding]:
    disks = look_at_disks(admin)
    beyond = [beyond_the_disk(disks, each) for each in disks.directories]
    found = judge_settings(look_at_settings(admin))
    return ranked([*found, *(each for each in beyond if each is not None)])


def _tell(findings: Sequence[Finding], as_json: bool, bootstrap: str) -> None:
    """Print findings; raise Exit where one of them is of something broken."""
    rows = list(_rows(findings, bootstrap))
    if as_json:
        print_json(rows)
    elif rows:
        print_rows(rows, {key: key for key in rows[0]})
    else:
        print("nothing was found to be wrong", file=sys.stderr)
    if any(each.severity is Severity.BROKEN for each in findings):
        raise typer.Exit(FAILED)


def _rows(findings: Iterable[Finding], bootstrap: str) -> Iterable[Row]:
    is_implied = bootstrap in (DEFAULT_BOOTSTRAP, os.environ.get("MILLSTREAM_BOOTSTRAP_SERVERS"))
    seen: set[Finding] = set()
    for each in findings:
        if each in seen:  # a disk that is told of by two of the looks
            continue
        seen.add(each)
        asks = each.remedy.startswith("millstream ") and not each.remedy.startswith(_STARTS)
        yield {
            "severity": SIGNS[each.severity],
            "subject": each.subject,
            "finding": each.sentence,
            "remedy": f"{each.remedy} -b {bootstrap}" if asks and not is_implied else each.remedy,
        }
