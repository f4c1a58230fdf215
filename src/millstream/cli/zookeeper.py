"""`millstream zookeeper`: a ZooKeeper from the jars that PySpark carries, for a cluster's metadata.

For machines that have none. An ensemble of one's own is named to brokers by `zookeeper.connect`
just the same.
"""

from __future__ import annotations

import os
import signal
import threading
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from millstream.cli.failures import CommandFailedError, complain
from millstream.zookeeper.embedded import JavaProgram, ZooKeeperEnsemble, find_jars

app = typer.Typer(help="ZooKeeper for a cluster's metadata.", no_args_is_help=True)


@app.callback()
def zookeeper() -> None:
    """Run the ZooKeeper that PySpark carries."""


@app.command()
def start(
    ensemble: Annotated[
        int, typer.Option(help="Number of servers; three survive one failure, five survive two.")
    ] = 1,
    directory: Annotated[Path, typer.Option("--dir", help="Directory for all data.")] = Path(
        "millstream-zookeeper"
    ),
    port: Annotated[
        list[int] | None,
        typer.Option(help="Client port, one for each server; by default the system picks."),
    ] = None,
) -> None:
    """Run ZooKeeper on this machine until Ctrl-C or SIGTERM.

    The first line of output is the value for zookeeper.connect.
    """
    if ensemble < 1 or ensemble % 2 == 0:
        raise typer.BadParameter("give an odd number", param_hint="--ensemble")
    if port and len(port) != ensemble:
        raise typer.BadParameter(f"give it {ensemble} times", param_hint="--port")
    stopped = stop_on_signal()
    servers = ZooKeeperEnsemble(java_program(), directory, size=ensemble, ports=port or ())
    with servers:
        print(f"zookeeper listening on {servers.connect}, data in {directory}", flush=True)
        told: set[str] = set()
        while not stopped.wait(0.5):
            fallen = {each.address for each in servers.servers if not each.running}
            if 2 * len(fallen) >= ensemble:
                places = ", ".join(sorted(fallen))
                raise CommandFailedError(
                    f"ZooKeeper at {places} has exited: too few servers are left"
                )
            for address in sorted(fallen - told):
                complain(f"ZooKeeper at {address} has exited, the others keep running")
            told |= fallen


def java_program() -> JavaProgram:
    """Return what runs ZooKeeper on this machine; CommandFailedError says what is missing."""
    from millstream.spark.java import find_java

    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise CommandFailedError(
            "ZooKeeper comes with PySpark: pip install 'millstream[spark]', or name an "
            "ensemble of your own with --override zookeeper.connect"
        )
    home = find_java(os.environ).home
    return JavaProgram(home / "bin" / "java", find_jars(Path(spec.origin).parent / "jars"))


def stop_on_signal() -> threading.Event:
    """Return what is set by SIGTERM and Ctrl-C; the second of them raises KeyboardInterrupt, for
    who does not want to wait until all has started and stopped in order.
    """
    stopped = threading.Event()

    def stop(number: int, frame: FrameType | None) -> None:
        if stopped.is_set():
            raise KeyboardInterrupt
        stopped.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    return stopped
