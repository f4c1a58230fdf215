"""`millstream cluster api-versions`: which versions of which requests brokers answer."""

from __future__ import annotations

from typing import Annotated

import typer

from millstream.cli.arguments import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, Timeout, open_admin
from millstream.cli.failures import CommandFailedError
from millstream.cli.output import Row, print_json, print_rows
from millstream.client import Admin
from millstream.client.core.admin.cluster import VersionRange
from millstream.protocol.api import APIS, ApiKey


def api_versions(
    broker: Annotated[
        list[int] | None,
        typer.Option("--broker", metavar="ID", help="By default all; may be repeated."),
    ] = None,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = None,
) -> None:
    """Show the API versions of brokers, and which of them this client uses."""
    with open_admin(bootstrap, timeout) as admin:
        rows: list[Row] = [
            _row(broker_id, key, there)
            for broker_id in _chosen(admin, broker)
            for key, there in sorted(admin.describe_features(broker_id).apis.items())
        ]
    if as_json:
        print_json(rows)
    else:
        print_rows(rows, {key: key for key in rows[0]})


def _chosen(admin: Admin, wanted: list[int] | None) -> list[int]:
    there = sorted(each.broker_id for each in admin.describe_cluster().brokers)
    for broker_id in wanted or ():
        if broker_id not in there:
            raise CommandFailedError(f"there is no live broker {broker_id}")
    return wanted or there


def _row(broker_id: int, key: int, there: VersionRange) -> dict[str, str | int | None]:
    name = ApiKey(key).name if key in set(ApiKey) else f"UNKNOWN({key})"
    ours = APIS.get(key)
    both = None if ours is None else min(there.last, ours.last_version)
    usable = both is not None and ours is not None and both >= max(there.first, ours.first_version)
    return {
        "broker": broker_id,
        "key": key,
        "api": name.replace("_", " ").title().replace(" ", ""),
        "lowest": there.first,
        "highest": there.last,
        "used": both if usable else None,
    }
