"""Options that several commands share, and the readers of what they are given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias, cast

import typer

from millstream.cli.client_options import given_bootstrap, given_timeout_ms, settings_of
from millstream.cli.reaching import PATIENCE_MS, wait_for_a_broker
from millstream.client.core.settings import AdminSettings
from millstream.client.settings import Address, parse_bootstrap_servers
from millstream.config.quantities import (
    is_duration,
    parse_duration_ms,
    parse_rate,
    parse_size,
)
from millstream.model.errors import ConfigError

if TYPE_CHECKING:
    from millstream.client import Admin

# typer carries its own copy of click in newer versions and uses the package in older ones; the base
# of BadParameter is the one name for "the command line is wrong" in both.
UsageError: Final = cast("type[Exception]", typer.BadParameter.__bases__[0])
"""Raised for options that do not go together; the text says why."""

DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092"

WAIT_MS: Final = 10_000
"""How long a command waits for brokers that do not answer."""

Bootstrap: TypeAlias = Annotated[
    str,
    typer.Option(
        "--bootstrap-server",
        "-b",
        metavar="HOST:PORT,…",
        envvar="MILLSTREAM_BOOTSTRAP_SERVERS",
        help="Brokers to connect to first.",
    ),
]
Timeout: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--timeout",
        metavar="TIME",
        help="How long to wait for brokers, for example 30s.",
        show_default="10s; 1s where all refuse connections",
    ),
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]
Configs: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--config", "-c", metavar="KEY=VALUE", help="A setting; may be repeated."),
]


def bootstrap_servers(bootstrap: str, timeout: str | None = None) -> str:
    """Return what a ``--bootstrap-server`` names, once something listens there."""
    patience_ms = given_timeout_ms() if timeout is None else duration_ms(timeout, "--timeout")
    chosen = chosen_bootstrap(bootstrap)
    wait_for_a_broker(_addresses(chosen), PATIENCE_MS if patience_ms is None else patience_ms)
    return chosen


def chosen_bootstrap(bootstrap: str) -> str:
    """Return what a ``--bootstrap-server`` names, or without one the settings of the client."""
    return given_bootstrap() or bootstrap if bootstrap == DEFAULT_BOOTSTRAP else bootstrap


def open_admin(bootstrap: str, timeout: str | None = None) -> Admin:
    """Return an administrator of the cluster that a ``--bootstrap-server`` names."""
    from millstream.client import Admin  # the list of commands needs none

    chosen: dict[str, object] = {
        "client.id": "millstream-cli",
        "default.api.timeout.ms": WAIT_MS,
        **settings_of(AdminSettings),
    }
    if timeout is not None:
        chosen["default.api.timeout.ms"] = duration_ms(timeout, "--timeout")
    chosen["bootstrap.servers"] = bootstrap_servers(bootstrap, timeout)
    return Admin(chosen)


def check_topic(bootstrap: str, topic: str) -> None:
    """Raise KafkaError if there is no such topic.

    For members of groups, which would wait without a word until somebody creates it.
    """
    with open_admin(bootstrap) as admin:
        admin.describe_topics([topic])[topic].get()


def _addresses(bootstrap: str) -> tuple[Address, ...]:
    try:
        return parse_bootstrap_servers(bootstrap)
    except ConfigError as error:
        raise typer.BadParameter(str(error), param_hint="--bootstrap-server") from None


def key_values(items: Sequence[str] | None, option: str) -> dict[str, str]:
    """Read ``KEY=VALUE`` items of an option, or of an argument named like ``FEATURE=LEVEL``."""
    return dict(key_value_pairs(items, option))


def key_value_pairs(items: Sequence[str] | None, option: str) -> list[tuple[str, str]]:
    """Read the same where a key may stand more than once, and order counts."""
    form = option if "=" in option else "KEY=VALUE"
    pairs = []
    for item in items or ():
        name, equals, value = item.partition("=")
        if not equals or not name.strip():
            raise typer.BadParameter(f"{item!r} is not {form}", param_hint=option)
        pairs.append((name.strip(), value.strip()))
    return pairs


def duration_ms(text: str, option: str) -> int:
    """Read ``500ms``, ``90s``, ``15m``, ``2h`` or ``7d``."""
    return _read(parse_duration_ms, text, option)


def size_bytes(text: str, option: str) -> int:
    """Read ``128MB``, ``512K`` or ``1G``."""
    return _read(parse_size, text, option)


def bytes_per_second(text: str, option: str) -> int:
    """Read ``50MB/s``."""
    return _read(parse_rate, text, option)


def _read(parse: Callable[[str], int], text: str, option: str) -> int:
    try:
        return parse(text)
    except ConfigError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None


def timestamp_ms(text: str, option: str, *, now_ms: int) -> int:
    """Read a moment: ``@MILLISECONDS``, an ISO 8601 time (UTC unless it says otherwise), or how
    long ago: ``15m``.
    """
    if text.startswith("@") and text[1:].isdecimal():
        return int(text[1:])
    if is_duration(text):
        return now_ms - duration_ms(text, option)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is not a time, such as 2026-01-31T12:00, @1769860800000 or 15m",
            param_hint=option,
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)
