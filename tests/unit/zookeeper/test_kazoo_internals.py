"""kazoo is held to the members of it that are used and that it does not promise to keep."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from kazoo.protocol import serialization as wire
from kazoo.protocol.states import KeeperState
from kazoo.security import OPEN_ACL_UNSAFE

from millstream.zookeeper.kazoo_internals import (
    Multi,
    MultiRead,
    dispose,
    open_no_more_sessions,
    submit,
)


@pytest.fixture
def client() -> Any:
    return KazooClient(hosts="127.0.0.1:1")


def test_a_request_of_our_own_waits_for_a_connection(client: Any) -> None:
    assert list(inspect.signature(client._call).parameters) == ["request", "async_object"]
    client._state = KeeperState.CONNECTING
    request = Multi([wire.CheckVersion("/a", 0)])
    result = submit(client, request)
    assert list(client._queue) == [(request, result)]


def test_a_client_without_a_session_answers_that_it_has_none(client: Any) -> None:
    result = submit(client, Multi([]))
    with pytest.raises(Exception, match="closed"):
        result.get()


def test_what_is_stopped_connects_no_more(client: Any) -> None:
    client._stopped.clear()
    assert not client._conn_retry.interrupt()
    open_no_more_sessions(client)
    assert client._conn_retry.interrupt(), "the loop that connects asks for this before each try"
    assert client._connection.connection_stopped is not None


def test_its_threads_end_although_it_is_stopped_already(client: Any) -> None:
    client.start_async()
    threads = [*client.handler._workers]
    assert threads
    open_no_more_sessions(client)
    dispose(client)
    for each in threads:
        each.join(10)
        assert not each.is_alive()


def test_the_stat_of_what_was_made_is_read() -> None:
    stat = wire.ZnodeStat(7, 7, 0, 0, 0, 0, 0, 0, 0, 0, 7)
    path = wire.write_string("/a")
    answer = b"".join(
        (
            wire.multiheader_struct.pack(wire.Create2.type, False, 0),
            path,
            wire.stat_struct.pack(*stat),
            wire.multiheader_struct.pack(-1, True, -1),
        )
    )
    assert Multi.deserialize(answer, 0) == [stat]
    request = wire.Create2("/a", b"", OPEN_ACL_UNSAFE, 0)
    assert request.type == wire.Create2.type


def test_many_reads_are_one_request() -> None:
    """As ZooKeeper's MultiOperationRecord: a header before each read, one that ends them."""
    body = MultiRead(["/a", "/bc"]).serialize()
    header = wire.multiheader_struct.pack(wire.GetData.type, False, -1)
    expected = header + wire.write_string("/a") + b"\0" + header + wire.write_string("/bc") + b"\0"
    assert body == expected + wire.multiheader_struct.pack(-1, True, -1)


def test_many_reads_have_one_answer_each() -> None:
    stat = wire.ZnodeStat(7, 7, 0, 0, 3, 0, 0, 0, 2, 0, 7)
    answer = b"".join(
        (
            wire.multiheader_struct.pack(wire.GetData.type, False, 0),
            wire.write_buffer(b"xy"),
            wire.stat_struct.pack(*stat),
            wire.multiheader_struct.pack(-1, False, -101),
            wire.int_struct.pack(-101),
            wire.multiheader_struct.pack(-1, True, -1),
        )
    )
    assert MultiRead.deserialize(b"##" + answer, 2) == [(b"xy", stat), None]


def test_many_reads_fail_as_one_where_one_is_refused() -> None:
    answer = wire.multiheader_struct.pack(-1, False, -102) + wire.int_struct.pack(-102)
    with pytest.raises(NoAuthError):
        MultiRead.deserialize(answer, 0)
