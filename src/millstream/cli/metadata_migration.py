"""Moves the metadata of a cluster from a keeper into a ZooKeeper, with the brokers stopped.

Every persistent node is made in an empty chroot with the payload that it had, then all are read
back and compared. Ephemeral nodes are of sessions and are not copied.

Payloads name *broker epochs*, the creation ids of registrations: membership in an ISR counts as
long as the broker's continuity is not later than it (`controller.election`). Those of the new store
may be compared with those of the old one only if all that come are larger than all that were. The
ids of a server on its own begin at 1, so they are raised by writes until they are beyond those of
the keeper; in an ensemble they begin above four thousand million.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from millstream.cli.brokers_plan import directory_name
from millstream.cli.failures import CommandFailedError
from millstream.model.deferred import Deferred, spawn
from millstream.model.errors import StorageError
from millstream.model.metadata_store import (
    ConnectionLossError,
    Create,
    Delete,
    MetadataStore,
    MetadataStoreError,
    Node,
)
from millstream.runtime.clock import LoopClock
from millstream.sqlite.database import FILE_NAME, MOVED_FILE, Database
from millstream.storage.files import LocalFileSystem
from millstream.storage.meta_properties import read_meta_properties

T = TypeVar("T")

PART_BYTES: Final = 500_000
"""Payloads in one write: ZooKeeper refuses requests beyond `jute.maxbuffer`, 1 MiB."""
PART_NODES: Final = 1_000
MOST_RAISES: Final = 500_000
"""How many writes may raise a server's ids: some minutes of them."""
RAISED_AT_ONCE: Final = 500
_SESSION_MS: Final = 30_000
_CONNECT_MS: Final = 15_000


@dataclass(frozen=True, slots=True)
class Migrated:
    """What was done."""

    nodes: int
    brokers: tuple[int, ...]
    """The brokers that keep replicas."""


def stored_nodes(directory: Path) -> tuple[dict[str, Node], int]:
    """Return the persistent nodes of the store in ``directory``, parents first, and the creation id
    that was given out last. CommandFailedError while it is in use, or where there is none.
    """
    if not (directory / FILE_NAME).exists():
        raise CommandFailedError(f"{directory} has no {FILE_NAME}: it is not a keeper's directory")
    try:
        database = Database(directory, shared=True)
    except StorageError as error:
        hint = "; stop the brokers and their keeper" if "locked" in str(error) else ""
        raise CommandFailedError(f"{error}{hint}") from error
    try:
        nodes = database.tree("/")
        last_id = database.last_creation_id
    finally:
        database.close()
    return {path: node for path, node in nodes.items() if not node.ephemeral}, last_id


def migrate(directory: Path, connect: str, tell: Callable[[str], None]) -> Migrated:
    """Copy the store in ``directory`` to the chroot that ``connect`` names. CommandFailedError
    where that is not empty, or what was written is not what was read. The keeper's file stays as it
    is, and is not opened any more.
    """
    from millstream.zookeeper.metadata_store import ZooKeeperMetadataStore

    nodes, last_id = stored_nodes(directory)
    loop = asyncio.new_event_loop()
    try:
        store = ZooKeeperMetadataStore(
            connect,
            clock=LoopClock(loop),
            session_timeout_ms=_SESSION_MS,
            call_on_loop=loop.call_soon_threadsafe,
        )

        def wait(outcome: Deferred[T]) -> T:
            if not outcome.done:
                outcome.on_done(lambda _: loop.stop())
            while not outcome.done:
                loop.run_forever()
            return outcome.result()

        try:
            wait(store.open(_CONNECT_MS))
            wait(spawn(copy(store, nodes, last_id, tell)))
        except ConnectionLossError as error:
            raise CommandFailedError(
                f"ZooKeeper at {connect} does not answer; if something was written there, use "
                "another chroot"
            ) from error
        except MetadataStoreError as error:
            raise CommandFailedError(f"ZooKeeper at {connect}: {error}") from error
        finally:
            wait(store.close())
    finally:
        loop.close()
    (directory / MOVED_FILE).write_text(f"{connect}\n", encoding="utf-8")
    return Migrated(len(nodes), keepers_of_replicas(nodes))


async def copy(
    store: MetadataStore, nodes: Mapping[str, Node], last_id: int, tell: Callable[[str], None]
) -> None:
    """Copy nodes into an empty store, then compare. CommandFailedError where it is not empty."""
    present = await store.children("/")
    if present:
        raise CommandFailedError(
            f"the target is not empty (it has /{present[0]}): name a chroot of its own, as "
            "HOST:PORT/CLUSTER"
        )
    await raise_ids(store, last_id, tell)
    wanted = {path: node.data for path, node in nodes.items() if path != "/"}
    for part in parts(wanted):
        await store.multi(part)
    written = await store.get_all(list(wanted))
    for path, data in wanted.items():
        found = written.get(path)
        if found is None or found.data != data:
            raise CommandFailedError(f"{path} was not written as it was read: nothing is to use it")


async def raise_ids(store: MetadataStore, last_id: int, tell: Callable[[str], None]) -> None:
    """Write until the store gives out creation ids beyond ``last_id``."""
    path = "/migration"
    (done,) = await store.multi([Create(path, b"")])
    (_,) = await store.multi([Delete(path)])
    missing = last_id - done.creation_id
    if missing <= 0:
        return
    if missing > MOST_RAISES:
        raise CommandFailedError(
            f"the server's transaction ids are {missing:,} behind those of the keeper, and broker "
            "epochs would go back: use an ensemble of three servers, whose ids begin higher"
        )
    tell(f"raising the server's transaction ids by {missing:,}")
    while missing > 0:
        writing = []
        for _ in range(min(RAISED_AT_ONCE, missing // 2 + 1)):
            writing.append(store.multi([Create(path, b"")]))
            writing.append(store.multi([Delete(path)]))
        for each in writing:
            await each
        missing -= len(writing)


def parts(wanted: Mapping[str, bytes]) -> Iterator[list[Create]]:
    """Yield creations in writes that ZooKeeper takes, parents first."""
    part: list[Create] = []
    size = 0
    for path, data in wanted.items():
        if part and (size + len(data) > PART_BYTES or len(part) == PART_NODES):
            yield part
            part, size = [], 0
        part.append(Create(path, data))
        size += len(data) + len(path)
    if part:
        yield part


def keepers_of_replicas(nodes: Mapping[str, Node]) -> tuple[int, ...]:
    """Return the ids of brokers that keep replicas."""
    from millstream.controller.loading import load_context

    context = load_context(nodes, piecemeal=True)
    ids = {
        int(broker)
        for topic in context.topics.values()
        for state in topic.partitions
        for broker in state.replicas
    }
    return tuple(sorted(ids))


def log_directory_of(directory: Path, broker_id: int, first: int, *, is_site: bool) -> Path:
    """Return where a broker's logs are: of `cluster start`, or of `serve --brokers`."""
    if is_site:
        return directory / f"broker-{broker_id}" / "data"
    meta = read_meta_properties(LocalFileSystem(), str(directory))
    own = first if meta is None or meta.node_id is None else meta.node_id
    return directory if broker_id == own else directory / directory_name(broker_id)
