"""`millstream console`: a web console for a cluster."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from millstream.cli.arguments import (
    DEFAULT_BOOTSTRAP,
    Bootstrap,
    bootstrap_servers,
)
from millstream.cli.client_options import registry_settings, settings_of, source_settings
from millstream.cli.failures import CommandFailedError
from millstream.cli.table_arguments import SchemaRegistry
from millstream.client.core.settings import AdminSettings
from millstream.config.references import resolve
from millstream.schemas.settings import RegistrySettings, read_registry_settings

_HOST = "127.0.0.1"
_WAIT_MS = 10_000
_ANSWER_MS = 2_000
"""A broker that does not answer for so long is left for another."""

_LogDirectories: TypeAlias = Annotated[
    list[Path] | None,
    typer.Option(
        "--log-dir",
        metavar="DIR",
        exists=True,
        file_okay=False,
        help="A log directory on this machine, for drawings of segments and indexes; may be "
        "repeated.",
    ),
]
_Tables: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--table",
        metavar="TOPIC=KIND:PLACE",
        help="A table that a load fills, for example hits=delta:lake/hits; may be repeated.",
    ),
]


_Login: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--login",
        help="Let each browser log in as a user of the cluster (SASL: PLAIN or SCRAM), and act as "
        "that user.",
    ),
]
_Keystore: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--tls-keystore",
        metavar="FILE",
        exists=True,
        dir_okay=False,
        help="Serve HTTPS with the certificate and key of a PEM file, as `millstream cert server` "
        "writes it.",
    ),
]
_Names: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--name",
        metavar="NAME",
        help="Another host name of the console, besides --host and localhost; may be repeated.",
    ),
]


def console(
    host: Annotated[
        str,
        typer.Option(
            help="Address to listen on. An address other than this machine's needs --login and "
            "--tls-keystore."
        ),
    ] = _HOST,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free port.")
    ] = 8090,
    login: _Login = False,
    tls_keystore: _Keystore = None,
    name: _Names = None,
    allow_writes: Annotated[
        bool,
        typer.Option("--allow-writes", help="Let the console send records and reset groups."),
    ] = False,
    log_dir: _LogDirectories = None,
    table: _Tables = None,
    schema_registry: SchemaRegistry = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Show a cluster in the browser: brokers, topics, records, groups, transactions and rules.

    By default it listens on this machine only. It changes nothing without --allow-writes. Needs
    'millstream[console]'.
    """
    _check_place(host, has_login=login, has_tls=tls_keystore is not None)
    from millstream.cli.console_server import listen, serve_app, tls_context
    from millstream.console.app import create_app
    from millstream.console.options import LOCAL_NAMES, ConsoleOptions
    from millstream.console.schema_values import open_schema_values
    from millstream.console.sessions import check_log_in
    from millstream.console.table_views import ShownTable

    client: dict[str, str] = {
        "client.id": "millstream-console",
        "default.api.timeout.ms": str(_WAIT_MS),
        "request.timeout.ms": str(_ANSWER_MS),
        **settings_of(AdminSettings),
    }
    if login:
        check_log_in(client)
    client["bootstrap.servers"] = bootstrap_servers(bootstrap)
    tls = None if tls_keystore is None else tls_context(tls_keystore)
    app = create_app(
        ConsoleOptions(
            client=client,
            allows_writes=allow_writes,
            login=login,
            is_secure=tls is not None,
            log_directories=tuple(log_dir or ()),
            schemas=open_schema_values(_registry(schema_registry)),
            tables=[ShownTable.parse(each) for each in table or ()],
            source={"kafka.bootstrap.servers": client["bootstrap.servers"], **source_settings()},
            hosts=[each.lower() for each in (*LOCAL_NAMES, *_names_of(host), *(name or ()))],
        )
    )
    with listen(host, port) as listening:
        scheme = "http" if tls is None else "https"
        shown = name[0] if name else f"[{host}]" if ":" in host else host
        place = f"{scheme}://{shown}:{listening.getsockname()[1]}/"
        print(f"millstream console: {place}", flush=True)
        serve_app(app, listening, tls)


def _check_place(host: str, *, has_login: bool, has_tls: bool) -> None:
    """Raise CommandFailedError for an address at which others could see what they may not."""
    import ipaddress

    try:
        is_local = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_local = False
    if is_local or (has_login and has_tls):
        return
    missing = [
        option
        for option, is_given in (("--login", has_login), ("--tls-keystore FILE", has_tls))
        if not is_given
    ]
    raise CommandFailedError(
        f"--host {host} is reached from other machines, so it needs {' and '.join(missing)}; "
        f"without users in the cluster, forward the port: ssh -L 8090:127.0.0.1:8090 HOST"
    )


def _names_of(host: str) -> list[str]:
    """Return the names that a browser may have for the address; those of all addresses are this
    machine's name alone.
    """
    import ipaddress
    import socket

    try:
        if ipaddress.ip_address(host).is_unspecified:
            return [socket.gethostname()]
    except ValueError:
        pass
    return [f"[{host}]" if ":" in host else host]


def _registry(url: str | None) -> RegistrySettings | None:
    given = resolve(registry_settings(url), os.environ)
    return read_registry_settings(given)
