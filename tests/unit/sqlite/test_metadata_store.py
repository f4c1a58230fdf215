"""The embedded metadata store: the contract, and what is particular to the file."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.contracts.metadata_store import MetadataStoreContract, OpenStore

from millstream.model.errors import StorageError
from millstream.model.metadata_store import Create, NoNodeError, SetData
from millstream.runtime.offload import InlineOffload, ThreadOffload
from millstream.sqlite.database import FILE_NAME, Database
from millstream.sqlite.metadata_store import SqliteMetadataStore


class TestContract(MetadataStoreContract):
    @pytest.fixture
    def open_store(self, tmp_path: Path) -> Iterator[OpenStore]:
        opened: list[SqliteMetadataStore] = []

        def open_one() -> SqliteMetadataStore:
            opened.append(SqliteMetadataStore(InlineOffload(), tmp_path))
            return opened[-1]

        yield open_one
        for store in opened:
            if not store.closed:
                store.close().result()


def test_a_crash_leaves_what_was_written_and_no_ephemeral_node(tmp_path: Path) -> None:
    database = Database(tmp_path)
    database.multi([Create("/a", b"one"), Create("/e", b"", ephemeral=True)])
    database.abandon()  # as a killed process: the file is left as it is
    again = Database(tmp_path)
    assert again.get("/a").data == b"one"
    with pytest.raises(NoNodeError):
        again.get("/e")
    assert again.multi([Create("/b", b"")])[0].creation_id > again.get("/a").creation_id
    again.close()


def test_a_second_broker_cannot_open_the_file(tmp_path: Path) -> None:
    first = Database(tmp_path)
    with pytest.raises(StorageError, match="locked"):
        Database(tmp_path)
    first.close()


def test_a_file_that_is_no_database_is_an_error_of_every_call(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"not a database" * 100)
    store = SqliteMetadataStore(InlineOffload(), tmp_path)
    for call in (store.opened(), store.get("/"), store.multi([Create("/a", b"")])):
        with pytest.raises(StorageError, match=r"is damaged \(file is not a database\): restore"):
            call.result()
    store.close().result()  # there is nothing to be closed


def test_a_directory_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError):
        Database(tmp_path / "none")


def test_work_of_a_thread_completes_on_the_loop(tmp_path: Path) -> None:
    calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
    offload = ThreadOffload(calls.put)
    store = SqliteMetadataStore(offload, tmp_path)
    told: list[str] = []
    store.watch("/a", told.append)
    outcomes = [
        store.multi([Create("/a", b"")]),
        store.multi([SetData("/a", b"x", 0)]),
        store.close(),
    ]
    while not outcomes[-1].done:
        calls.get(timeout=10)()
    assert outcomes[1].result()[0].version == 1
    assert told == ["/a", "/a"]
    offload.close()


def test_nothing_of_a_batch_counts_that_the_disk_has_no_room_for(tmp_path: Path) -> None:
    database = Database(tmp_path)
    database.multi([Create("/a", b"one")])
    before = database.last_creation_id
    run = database._connection.execute
    pages = run("PRAGMA page_count").fetchone()[0]
    run(f"PRAGMA max_page_count = {pages + 4}")

    def write_both() -> None:
        with database.batch():
            database.multi([Create("/b", b"two")])
            database.multi([Create("/large", bytes(1 << 20))])

    with pytest.raises(StorageError, match="full"):
        write_both()
    assert database.last_creation_id == before
    run("PRAGMA max_page_count = 1000000")
    with pytest.raises(NoNodeError):
        database.get("/b")
    assert [done.creation_id for done in database.multi([Create("/b", b"two")])] == [before + 1]
    database.close()
