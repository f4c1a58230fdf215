"""`millstream serve --brokers`: a keeper and brokers over one data directory, behind a command."""

from __future__ import annotations

import itertools
import secrets
import selectors
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from millstream.cli.brokers_plan import (
    PASSWORD_VARIABLE,
    BrokerPlan,
    directory_name,
    log_directories,
    metrics_port,
    plan_brokers,
)
from millstream.cli.serve_arguments import ServeArguments
from millstream.config.broker import BrokerConfig
from millstream.keeper.socket_path import socket_in
from millstream.model.errors import ConfigError, StorageError
from millstream.platform import CAN_PIN, usable_cores
from millstream.server.log_format import configure_log, of_process
from millstream.server.log_outlet import LogOutlet
from millstream.server.supervisor import Child, Program, Supervisor, Watcher
from millstream.storage.record_lock import LocalLock

if TYPE_CHECKING:
    from millstream.cli.serve_console import ConsoleBeside

SUPERVISOR_LOCK: Final = ".millstream-supervisor.lock"
STANDARD_ERROR: Final = 2
_MILLSTREAM: Final = (sys.executable, "-m", "millstream.cli.main")


def serve_brokers(
    arguments: ServeArguments, config: BrokerConfig, console: ConsoleBeside | None = None
) -> int:
    """Run the brokers, and a console beside them, until a signal; return the exit code.

    ConfigError, StorageError and StartFailedError say why they do not run.
    """
    assert arguments.brokers is not None
    if arguments.pins and not CAN_PIN:
        raise ConfigError("--pin: this system cannot pin a process to a core")
    count = arguments.brokers or len(usable_cores())
    # Not sys.stderr: a log that nobody reads, or that cannot be written, stops no broker.
    outlet = LogOutlet(STANDARD_ERROR)
    configure_log(config.log_format, config.log_level, outlet)
    directory = Path(config.log_directories[0]).absolute()
    plans = plan_brokers(config, count, ports=arguments.ports, socket=str(socket_in(directory)))
    directory.mkdir(parents=True, exist_ok=True)
    try:
        lock = LocalLock(f"{directory}/{SUPERVISOR_LOCK}")
    except BlockingIOError as error:
        raise StorageError(str(directory), "another process is using this directory") from error
    try:
        _refuse_to_leave_out(config, directory, count)
        _run(arguments, config, plans, directory, outlet, console)
    finally:
        outlet.close()
        lock.release()
    return 0


def _run(
    arguments: ServeArguments,
    config: BrokerConfig,
    plans: Sequence[BrokerPlan],
    directory: Path,
    outlet: LogOutlet,
    console: ConsoleBeside | None,
) -> None:
    for plan in plans[1:]:
        for each in plan.overrides["log.dirs"].split(","):
            Path(each).mkdir(parents=True, exist_ok=True)
    environment = {PASSWORD_VARIABLE: secrets.token_urlsafe(24)}
    pins: Sequence[int | None] = [None]
    if arguments.pins:
        pins = usable_cores()
    brokers = [
        Program(
            f"broker {plan.broker_id}",
            partial(_command, arguments, plan),
            environment,
            pins[index % len(pins)],
        )
        for index, plan in enumerate(plans)
    ]

    def ready(addresses: Sequence[str]) -> None:
        announce(addresses, config.log_directories)
        if console is not None:
            found = [plan.overrides["log.dirs"].split(",") for plan in plans[1:]]
            console.start(addresses, [*config.log_directories, *itertools.chain(*found)])

    keeper = Program("keeper", lambda _: [*_MILLSTREAM, "keeper", str(directory)])
    Supervisor(
        keeper,
        brokers,
        outlet=outlet,
        on_ready=ready,
        passes_hang_up=config.outlives_hang_up,
        new_watcher=partial(_watcher, config, len(plans)),
        line_of=lambda name, text: of_process(name, text, config.log_format),
    ).run()


def _watcher(
    config: BrokerConfig, count: int, selector: selectors.BaseSelector, children: Sequence[Child]
) -> Watcher | None:
    """Return what serves the metrics of the processes, after the ports of their own."""
    if not config.metrics_port:
        return None
    from millstream.server.metrics.of_processes import ProcessWatcher

    return ProcessWatcher(config.metrics_host, metrics_port(config, count), selector, children)


def announce(addresses: Sequence[str], directories: Sequence[str]) -> None:
    """Print the first line of output: where the brokers listen and where their data lies."""
    print(
        f"millstream listening on {','.join(addresses)}, data in {', '.join(directories)}",
        flush=True,
    )


def _command(arguments: ServeArguments, plan: BrokerPlan, address: str) -> list[str]:
    command = [*_MILLSTREAM, "serve"]
    if arguments.properties_file is not None:
        command.append(arguments.properties_file)
    settings = {**dict(arguments.overrides), **plan.settings(address)}
    for name, value in settings.items():
        command += ["--override", f"{name}={value}"]
    return command


def _refuse_to_leave_out(config: BrokerConfig, directory: Path, count: int) -> None:
    """Raise CommandFailedError where brokers that would not be started have replicas. Looks into
    the store only where there are directories of such brokers.
    """
    known = {config.broker + index for index in range(count)}
    others = {
        int(found.name.removeprefix(directory_name(0)[:-1]))
        for each in log_directories(config, 0)
        for found in Path(each).glob(directory_name(0)[:-1] + "*")
        if found.name.removeprefix(directory_name(0)[:-1]).isdecimal()
    }
    if others <= known:
        return
    from millstream.controller.leaving_out import refuse_to_leave_out
    from millstream.controller.loading import load_context
    from millstream.sqlite.database import Database

    database = Database(directory, shared=True)
    try:
        context = load_context(database.tree("/"), piecemeal=True)
    finally:
        database.close()
    refuse_to_leave_out(context, known)
