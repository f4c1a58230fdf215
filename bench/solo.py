"""Brokers that are started, stopped and killed one by one, each alone on a directory of its own."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from bench.figures import Figure
from bench.pairs import KAFKA, MILLSTREAM
from bench.peers.kafka import KafkaNode, free_port
from bench.peers.millstream import millstream_node
from bench.peers.subject import Node
from bench.session import Session

# Returns a node that was spawned a moment ago and does not listen yet; its port is known.
Spawn = Callable[[Path], Node]


def spawns(session: Session, settings: Mapping[str, str] | None = None) -> dict[str, Spawn]:
    """Return per subject how to spawn a node on a directory; what `settings` leave is default."""
    found: dict[str, Spawn] = {}
    install = session.stage.install
    if install is not None:

        def spawn_kafka(directory: Path) -> Node:
            node = KafkaNode(install, directory, settings=settings)
            node.prepare()
            node.spawn()
            return node

        found[KAFKA] = spawn_kafka
    found[MILLSTREAM] = partial(_spawn_millstream, settings)
    return found


def _spawn_millstream(settings: Mapping[str, str] | None, directory: Path) -> Node:
    node = millstream_node(directory, settings=settings, port=free_port())
    node.spawn()
    return node


@contextmanager
def running(spawn: Spawn, directory: Path, *, keep: bool = False) -> Iterator[Node]:
    """Spawn a node and stop it afterwards; its directory goes too unless `keep`."""
    node = spawn(directory)
    try:
        yield node
    finally:
        node.stop()
        if not keep:
            shutil.rmtree(directory, ignore_errors=True)


def attempt(figures: list[Figure], subject: str, work: Callable[[], None]) -> None:
    """Do a piece of work for a subject; when it fails, note why in every figure and go on."""
    if any(subject in figure.failures for figure in figures):
        return
    try:
        work()
    except Exception as error:
        for figure in figures:
            figure.failures[subject] = f"{type(error).__name__}: {error}"
