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
    watch_grants,
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


def test_a_granted_timeout_comes_with_the_time_of_the_request(client: Any) -> None:
    """Before kazoo says that it is connected; a session that is over is granted nothing."""
    connection = client._connection
    assert list(inspect.signature(connection._invoke).parameters) == ["timeout", "request", "xid"]
    assert "self._invoke(" in inspect.getsource(type(connection)._connect)
    now_ms = [5.0]
    answers = [
        (wire.Connect(0, 0, 4_000, 7, b"", False), None),
        (wire.Connect(0, 0, 0, 7, b"", False), None),
    ]

    def invoke(timeout: float, request: Any, xid: int | None = None) -> Any:
        now_ms[0] += 100
        return answers.pop(0) if isinstance(request, wire.Connect) else 12

    connection._invoke = invoke
    granted: list[tuple[float, int]] = []
    watch_grants(client, lambda: now_ms[0], lambda *grant: granted.append(grant))
    request = wire.Connect(0, 0, 30_000, 0, b"", False)
    assert connection._invoke(1, request)[0].time_out == 4_000
    assert connection._invoke(1, request)[0].time_out == 0
    assert connection._invoke(1, wire.Auth(0, "a", "b"), xid=1) == 12
    assert granted == [(5.0, 4_000)]
