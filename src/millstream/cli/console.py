"""`millstream console`: a web console for a cluster, on this machine."""

from __future__ import annotations

from pathlib import Path
from types import FrameType
from typing import Annotated, TypeAlias

import typer

from millstream.cli.arguments import (
    DEFAULT_BOOTSTRAP,
    Bootstrap,
    bootstrap_servers,
)
from millstream.cli.client_options import settings_of, source_settings
from millstream.cli.failures import CommandFailedError
from millstream.client.core.settings import AdminSettings

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
        help="A table that a load fills, as hits=delta:lake/hits; may be repeated.",
    ),
]


def console(
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Where to listen; 0 takes a free port.")
    ] = 8090,
    allow_writes: Annotated[
        bool,
        typer.Option("--allow-writes", help="Let the console send records and reset groups."),
    ] = False,
    log_dir: _LogDirectories = None,
    table: _Tables = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Show a cluster in the browser: brokers, topics, records, groups, transactions and rules.

    It listens on this machine only, and changes nothing without --allow-writes. Needs
    'millstream[console]'.
    """
    import socket

    import uvicorn

    from millstream.console.app import ConsoleOptions, create_app
    from millstream.console.table_views import ShownTable

    client: dict[str, str] = {
        "client.id": "millstream-console",
        "default.api.timeout.ms": str(_WAIT_MS),
        "request.timeout.ms": str(_ANSWER_MS),
        **settings_of(AdminSettings),
        "bootstrap.servers": bootstrap_servers(bootstrap),
    }
    app = create_app(
        ConsoleOptions(
            client=client,
            allows_writes=allow_writes,
            log_directories=tuple(log_dir or ()),
            tables=[ShownTable.parse(each) for each in table or ()],
            source={"kafka.bootstrap.servers": client["bootstrap.servers"], **source_settings()},
        )
    )
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((_HOST, port))
    except OSError as error:
        listening.close()
        raise CommandFailedError(
            f"cannot listen on {_HOST}:{port}: {error.strerror}; choose another --port"
        ) from error
    with listening:
        print(f"millstream console: http://{_HOST}:{listening.getsockname()[1]}/", flush=True)
        config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=2)
        server = uvicorn.Server(config)
        leave = server.handle_exit

        def end(signal_number: int, frame: FrameType | None) -> None:
            # Live views wait for records: they end first, or the server would have to break them.
            app.state.ended.set()
            leave(signal_number, frame)

        server.handle_exit = end  # type: ignore[method-assign, assignment]
        server.run(sockets=[listening])
