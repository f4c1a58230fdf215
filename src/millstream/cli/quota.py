"""`millstream quota`: how much clients may use."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from millstream.cli.arguments import (
    DEFAULT_BOOTSTRAP,
    AsJson,
    Bootstrap,
    Timeout,
    UsageError,
    bytes_per_second,
    key_values,
    open_admin,
)
from millstream.cli.failures import FAILED, complain, sentence
from millstream.cli.output import Row, print_done, print_json, print_rows
from millstream.client.core.admin.access import QuotaEntity

app = typer.Typer(
    help="Quotas: how much users, client ids and addresses may use.", no_args_is_help=True
)

OfUser = Annotated[str | None, typer.Option("--user", "-u", help="A user.")]
OfUsers = Annotated[
    bool, typer.Option("--user-default", help="All users without quotas of their own.")
]
OfClient = Annotated[str | None, typer.Option("--client-id", "-c", help="A client id.")]
OfClients = Annotated[
    bool, typer.Option("--client-default", help="All client ids without quotas of their own.")
]
OfAddress = Annotated[str | None, typer.Option("--ip", help="The address of clients.")]
OfAddresses = Annotated[
    bool, typer.Option("--ip-default", help="All addresses without quotas of their own.")
]

_NAMES: Final = {
    "produce": "producer_byte_rate",
    "consume": "consumer_byte_rate",
    "request": "request_percentage",
    "mutation": "controller_mutation_rate",
    "connection": "connection_creation_rate",
}
"""Short names of quotas."""

_RATES: Final = ("producer_byte_rate", "consumer_byte_rate")


@app.command("list")
def list_quotas(
    user: OfUser = None,
    user_default: OfUsers = False,
    client_id: OfClient = None,
    client_default: OfClients = False,
    ip: OfAddress = None,
    ip_default: OfAddresses = False,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = None,
) -> None:
    """Show quotas: all, or those of an entity."""
    parts = _parts(user, user_default, client_id, client_default, ip, ip_default)
    with open_admin(bootstrap, timeout) as admin:
        found = admin.describe_client_quotas(dict(parts) or None)
    rows: list[Row] = [
        {**_columns(entity), "quota": name, "value": value}
        for entity, quotas in found.items()
        for name, value in sorted(quotas.items())
    ]
    if as_json:
        print_json(rows)
    else:
        headings = {"user": "user", "client_id": "client id", "ip": "address"}
        print_rows(rows, {**headings, "quota": "quota", "value": "value"})


@app.command("set")
def set_quotas(
    items: Annotated[
        list[str],
        typer.Argument(
            metavar="QUOTA=VALUE",
            help="For example produce=10MB/s, consume=1MB/s, request=50, mutation=5, "
            "connection=20.",
        ),
    ],
    user: OfUser = None,
    user_default: OfUsers = False,
    client_id: OfClient = None,
    client_default: OfClients = False,
    ip: OfAddress = None,
    ip_default: OfAddresses = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = None,
) -> None:
    """Set quotas of an entity."""
    entity = _entity(_parts(user, user_default, client_id, client_default, ip, ip_default))
    values: dict[str, float | None] = {
        _name(name): _number(_name(name), text)
        for name, text in key_values(items, "QUOTA=VALUE").items()
    }
    _alter(entity, values, bootstrap, timeout)
    for name, value in values.items():
        told = f"{name} of {_words(entity)} is {_plain(value)}"
        print_done(told, *_columns(entity).values(), name, value)


@app.command("remove")
def remove_quotas(
    names: Annotated[
        list[str], typer.Argument(metavar="QUOTA", help="For example produce or consume.")
    ],
    user: OfUser = None,
    user_default: OfUsers = False,
    client_id: OfClient = None,
    client_default: OfClients = False,
    ip: OfAddress = None,
    ip_default: OfAddresses = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = None,
) -> None:
    """Remove quotas of an entity."""
    entity = _entity(_parts(user, user_default, client_id, client_default, ip, ip_default))
    values: dict[str, float | None] = dict.fromkeys(map(_name, names))
    _alter(entity, values, bootstrap, timeout)
    for name in values:
        told = f"{_words(entity)} has no {name}"
        print_done(told, *_columns(entity).values(), name, None)


def _alter(
    entity: QuotaEntity, values: dict[str, float | None], bootstrap: str, timeout: str | None
) -> None:
    with open_admin(bootstrap, timeout) as admin:
        outcome = admin.alter_client_quotas({entity: values})[entity]
    if outcome.error is not None:
        complain(f"{_words(entity)}: {sentence(outcome.error)}")
        raise typer.Exit(FAILED)


def _parts(
    user: str | None,
    user_default: bool,
    client_id: str | None,
    client_default: bool,
    ip: str | None,
    ip_default: bool,
) -> tuple[tuple[str, str | None], ...]:
    parts: list[tuple[str, str | None]] = []
    for kind, name, is_default in (
        ("user", user, user_default),
        ("client-id", client_id, client_default),
        ("ip", ip, ip_default),
    ):
        if name is not None and is_default:
            raise UsageError(f"name one {kind}, or the default of all")
        if name is not None or is_default:
            parts.append((kind, name))
    return tuple(parts)


def _entity(parts: tuple[tuple[str, str | None], ...]) -> QuotaEntity:
    if not parts:
        raise UsageError("name an entity: --user, --client-id, both, --ip, or a default")
    return QuotaEntity(parts)


def _name(text: str) -> str:
    name = _NAMES.get(text, text)
    if name not in _NAMES.values():
        raise UsageError(f"{text!r} is not one of {', '.join(_NAMES)}")
    return name


def _number(name: str, text: str) -> float:
    if name in _RATES:
        return bytes_per_second(text, "QUOTA=VALUE")
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"{text!r} is not a number") from None


def _plain(value: float | None) -> str:
    """Return a number without a fraction that is none."""
    assert value is not None
    return str(int(value)) if value == int(value) else str(value)


def _columns(entity: QuotaEntity) -> Row:
    parts = dict(entity.parts)
    return {
        column: None if kind not in parts else parts[kind] or "(default)"
        for column, kind in (("user", "user"), ("client_id", "client-id"), ("ip", "ip"))
    }


def _words(entity: QuotaEntity) -> str:
    kinds = {"user": "user", "client-id": "client id", "ip": "address"}
    return ", ".join(
        f"the default {kinds[kind]}" if name is None else f"{kinds[kind]} {name}"
        for kind, name in entity.parts
    )
