"""All uses of kazoo's private members.

====================  ============================================================================
member                why it is needed
====================  ============================================================================
``_call``             ``transaction().commit_async`` sends a request that does not tell the stat of
                      a node that was made: the creation id is a broker's epoch. Nothing public
                      takes a request of one's own.
``_stopped``          Set while kazoo's thread reports that a session is over, it keeps that thread
                      from opening another session at once. ``stop`` waits for the thread, so it
                      cannot be called there.
``_safe_close``       What ``stop`` does beside setting ``_stopped``.
``_connection`` Its ``_invoke`` asks a server for the session. kazoo does not store the granted
time-out, and has no public way to get the time of the request. ====================
============================================================================

``tests/unit/zookeeper/test_kazoo_internals.py`` checks them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from kazoo import exceptions as kazoo_errors
from kazoo.protocol import serialization as wire

log = logging.getLogger(__name__)


def submit(client: Any, request: Any) -> Any:
    """Send a request; return kazoo's asynchronous result of it."""
    result = client.handler.async_result()
    client._call(request, result)
    return result


def open_no_more_sessions(client: Any) -> None:
    """Keep a client whose session has ended from opening another one. Any thread."""
    client._stopped.set()


def watch_grants(
    client: Any, now_ms: Callable[[], float], granted: Callable[[float, int], None]
) -> None:
    """Call ``granted(sent_ms, timeout_ms)`` whenever a server takes the session: the time of the
    request, and the granted time-out. On kazoo's thread, before kazoo says that it is connected.
    """
    connection = client._connection
    invoke = connection._invoke

    def watched(timeout: float, request: Any, xid: int | None = None) -> Any:
        sent_ms = now_ms()
        answer = invoke(timeout, request, xid)
        if isinstance(request, wire.Connect) and answer[0].time_out > 0:
            granted(sent_ms, answer[0].time_out)
        return answer

    connection._invoke = watched


def dispose(client: Any) -> None:
    """Stop a client and its threads; it may take some seconds.

    ``stop`` does nothing once the session is over, and would leave the threads behind.
    """
    try:
        if client._stopped.is_set():
            client._safe_close()
        else:
            client.stop()
        client.close()
    except Exception:
        log.debug("a kazoo client did not close", exc_info=True)


class MultiRead:
    """Many reads in one request (ZooKeeper 3.6; kazoo has none). The answer has for each path what
    kazoo answers to one read, data and stat, or None for a node that is absent.
    """

    type = 22

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = paths

    def serialize(self) -> bytes:
        """Return the body of the request."""
        body = bytearray()
        header = wire.MultiHeader(wire.GetData.type, False, -1).serialize()
        for path in self._paths:
            body += header
            body += wire.GetData(path, None).serialize()
        return bytes(body + wire.MultiHeader(-1, True, -1).serialize())

    @classmethod
    def deserialize(cls, data: Any, offset: int) -> list[Any]:
        """Read the answer."""
        results: list[Any] = []
        header, offset = wire.MultiHeader.deserialize(data, offset)
        while not header.done:
            if header.type == -1:
                code = wire.int_struct.unpack_from(data, offset)[0]
                offset += wire.int_struct.size
                error = kazoo_errors.EXCEPTIONS[code]
                if error is not kazoo_errors.NoNodeError:
                    raise error
                results.append(None)
            else:
                content, offset = wire.read_buffer(data, offset)
                stat = wire.ZnodeStat._make(wire.stat_struct.unpack_from(data, offset))
                offset += wire.stat_struct.size
                results.append((content, stat))
            header, offset = wire.MultiHeader.deserialize(data, offset)
        return results


class Multi(wire.Transaction):  # type: ignore[misc]  # kazoo has no types
    """kazoo's transaction, extended to return the stat of a created node."""

    @classmethod
    def deserialize(cls, data: Any, offset: int) -> list[Any]:
        """Return a stat for each create and set, None for what has none, or the errors."""
        results: list[Any] = []
        header, offset = wire.MultiHeader.deserialize(data, offset)
        while not header.done:
            result: Any = None
            if header.type == wire.Create2.type:
                _, offset = wire.read_string(data, offset)
                result = wire.ZnodeStat._make(wire.stat_struct.unpack_from(data, offset))
                offset += wire.stat_struct.size
            elif header.type == wire.SetData.type:
                result = wire.ZnodeStat._make(wire.stat_struct.unpack_from(data, offset))
                offset += wire.stat_struct.size
            elif header.type == -1:
                code = wire.int_struct.unpack_from(data, offset)[0]
                offset += wire.int_struct.size
                result = kazoo_errors.EXCEPTIONS[code]()
            results.append(result)
            header, offset = wire.MultiHeader.deserialize(data, offset)
        return results
