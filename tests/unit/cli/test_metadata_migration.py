"""The tree of a keeper in another store: what is copied, what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.memory_metadata_store import MemoryMetadataStore, MemoryTree

from millstream.cli import metadata_migration
from millstream.cli.failures import CommandFailedError
from millstream.cli.metadata_migration import copy, parts, stored_nodes
from millstream.model.deferred import spawn
from millstream.model.errors import StorageError
from millstream.model.metadata_store import Create, Node, NoNodeError
from millstream.sqlite.database import MOVED_FILE, Database, StoredSession

PATHS = ("/a", "/a/b", "/a/b/c", "/a-x", "/d")


@pytest.fixture
def keeper(tmp_path: Path) -> Path:
    database = Database(tmp_path, shared=True)
    session = database.add_session(StoredSession(b"s", 6_000))
    database.multi([Create(path, path.encode()) for path in PATHS])
    database.multi([Create("/a/ephemeral", b"", ephemeral=True)], session)
    database.close()
    return tmp_path


def copied(store: MemoryMetadataStore, keeper: Path) -> list[str]:
    told: list[str] = []
    nodes, last_id = stored_nodes(keeper)
    spawn(copy(store, nodes, last_id, told.append)).result()
    return told


def test_every_persistent_node_is_copied(keeper: Path) -> None:
    store = MemoryTree().open()
    copied(store, keeper)
    tree = store.tree("/").result()
    assert {path: node.data for path, node in tree.items() if path != "/"} == {
        path: path.encode() for path in PATHS
    }
    assert not any(node.ephemeral for node in tree.values())


def test_creation_ids_never_go_back(keeper: Path) -> None:
    database = Database(keeper, shared=True)
    for number in range(40):
        database.multi([Create(f"/more{number}", b"")])
    last_id = database.last_creation_id
    database.close()
    store = MemoryTree().open()
    told = copied(store, keeper)
    assert "raising the server's transaction ids by" in told[0]
    assert all(
        node.creation_id > last_id for path, node in store.tree("/").result().items() if path != "/"
    )
    assert "/migration" not in store.tree("/").result()


def test_ids_that_are_too_far_behind_are_refused(
    keeper: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata_migration, "MOST_RAISES", 0)
    with pytest.raises(CommandFailedError, match="broker epochs would go back"):
        copied(MemoryTree().open(), keeper)


def test_a_store_that_is_not_empty_is_refused(keeper: Path) -> None:
    store = MemoryTree().open()
    store.multi([Create("/theirs", b"")]).result()
    with pytest.raises(CommandFailedError, match="the target is not empty"):
        copied(store, keeper)
    with pytest.raises(NoNodeError):
        store.get("/a").result()


class Lossy(MemoryMetadataStore):
    """Writes one node otherwise."""

    def get_all(self, paths: Sequence[str]):  # type: ignore[no-untyped-def]
        found = dict(super().get_all(paths).result())
        found["/d"] = Node(b"other", 0, 1)
        outcome = super().get_all([])
        outcome._value = found
        return outcome


def test_what_was_not_written_as_it_was_read_is_noticed(keeper: Path) -> None:
    tree = MemoryTree()
    store = Lossy(tree)
    tree.stores.append(store)
    with pytest.raises(CommandFailedError, match="/d was not written as it was read"):
        copied(store, keeper)


def test_writes_are_small_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_migration, "PART_BYTES", 100)
    wanted = {f"/{number:03}": b"d" * 40 for number in range(10)}
    found = list(parts(wanted))
    assert [each.path for part in found for each in part] == list(wanted)
    assert all(sum(len(each.data) for each in part) <= 100 for part in found)


def test_a_keeper_that_runs_is_left_alone(keeper: Path, tmp_path: Path) -> None:
    database = Database(keeper, shared=True)
    with pytest.raises(CommandFailedError, match="stop the brokers and their keeper"):
        stored_nodes(keeper)
    database.close()
    with pytest.raises(CommandFailedError, match="not a keeper's directory"):
        stored_nodes(tmp_path / "none")


def test_a_store_that_was_moved_is_not_opened_again(keeper: Path) -> None:
    (keeper / MOVED_FILE).write_text("zk:2181/c\n")
    for shared in (True, False):
        with pytest.raises(StorageError, match=r"set zookeeper\.connect=zk:2181/c"):
            Database(keeper, shared=shared)
    (keeper / MOVED_FILE).unlink()
    Database(keeper, shared=True).close()
