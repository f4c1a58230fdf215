"""What a keeper and its clients send each other over a socket of one machine.

A frame is::

    size int32 | request id int32 | kind int8 | message, version 0, flexible

A request has an id that its answer repeats. What the keeper sends without having been asked
(:class:`NodesChanged`, :class:`SessionEnded`) has the id 0. Nothing here is of Kafka's: both sides
are of one installation, so there is one version.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from struct import Struct as Format
from typing import Final, TypeAlias

from millstream.model.errors import ProtocolError
from millstream.model.metadata_store import (
    BadVersionError,
    Check,
    ConnectionLossError,
    Create,
    Delete,
    Done,
    MetadataStoreError,
    Node,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    SessionExpiredError,
    SetData,
)
from millstream.protocol.compile import decode, encode
from millstream.protocol.fields import array, bool_, bytes_, int8, int32, int64, string
from millstream.protocol.message import Message
from millstream.protocol.outgoing import Outgoing, Records
from millstream.protocol.schema import Struct

MAX_REQUEST_BYTES: Final = 16 << 20
MAX_ANSWER_BYTES: Final = 64 << 20
MAX_REQUEST_ELEMENTS: Final = 1 << 17
PART_BYTES: Final = 1 << 20
"""Nodes of about so many bytes are in one answer; the client asks for the others."""
READ_AT_ONCE: Final = 500
"""Nodes that one request asks for."""
SECRET_BYTES: Final = 16
UNASKED: Final = 0

_HEAD: Final = Format(">iib")
_START: Final = Format(">ib")


class OpenSession(Message, versions="0", flexible="0+"):
    """Open a session, or resume one by its id and secret; the first request of a connection."""

    session_id: int = int64(default=0)
    secret: bytes = bytes_(default=b"")
    timeout_ms: int = int32()
    name: str = string(default="")
    """Who opens it, for the log."""


class SessionOpened(Message, versions="0", flexible="0+"):
    """The session, new or resumed, with the time-out that is granted."""

    session_id: int = int64()
    secret: bytes = bytes_()
    timeout_ms: int = int32()


class Ping(Message, versions="0", flexible="0+"):
    """Keep the session: any request does."""


class Pong(Message, versions="0", flexible="0+"):
    """Answer of Ping, WatchNodes and CloseSession."""


class ReadNodes(Message, versions="0", flexible="0+"):
    """Read some nodes."""

    paths: list[str] = array(string())


class ReadNode(Struct):
    """A node as it is stored."""

    path: str = string()
    data: bytes = bytes_()
    version: int = int32()
    creation_id: int = int64()
    owner: int = int64()


class NodesRead(Message, versions="0", flexible="0+"):
    """Those of the first ``looked`` paths of the request that are there, or a part of a tree."""

    nodes: list[ReadNode] = array(ReadNode)
    looked: int = int32(default=0)
    is_last: bool = bool_(default=True)


class ListChildren(Message, versions="0", flexible="0+"):
    """List the names of a node's children."""

    path: str = string()


class ChildrenListed(Message, versions="0", flexible="0+"):
    """The names, sorted."""

    names: list[str] = array(string())


class ReadTree(Message, versions="0", flexible="0+"):
    """Read the nodes below one, those behind ``after``."""

    path: str = string()
    after: str = string(default="")


class StoredOperation(Struct):
    """One of the operations of Change."""

    kind: int = int8()
    path: str = string()
    data: bytes = bytes_(default=b"")
    version: int = int32(default=0)
    ephemeral: bool = bool_(default=False)


class Change(Message, versions="0", flexible="0+"):
    """Carry out all operations or none."""

    operations: list[StoredOperation] = array(StoredOperation)


class OperationDone(Struct):
    """What an operation has left."""

    version: int = int32()
    creation_id: int = int64()


class Changed(Message, versions="0", flexible="0+"):
    """The operations are on disk."""

    done: list[OperationDone] = array(OperationDone)


class WatchNodes(Message, versions="0", flexible="0+"):
    """Tell of each change of these nodes and of their lists of children, from now on."""

    paths: list[str] = array(string())


class NodesChanged(Message, versions="0", flexible="0+"):
    """Watched nodes may have changed. Sent before the answer to whoever changed them."""

    paths: list[str] = array(string())


class CloseSession(Message, versions="0", flexible="0+"):
    """End the session: its ephemeral nodes are gone when this is answered."""


class SessionEnded(Message, versions="0", flexible="0+"):
    """The session of this connection is over; the client may open another one on it."""


class Failed(Message, versions="0", flexible="0+"):
    """The request was refused; the error is the index of its class in ``ERRORS``."""

    error: int = int8()
    path: str = string(default="")


KINDS: Final[tuple[type[Message], ...]] = (
    OpenSession,
    SessionOpened,
    Ping,
    Pong,
    ReadNodes,
    NodesRead,
    ListChildren,
    ChildrenListed,
    ReadTree,
    Change,
    Changed,
    WatchNodes,
    NodesChanged,
    CloseSession,
    SessionEnded,
    Failed,
)
"""A message's kind is its index."""

_KIND_OF: Final = {cls: index for index, cls in enumerate(KINDS)}

ERRORS: Final[tuple[type[MetadataStoreError], ...]] = (
    ConnectionLossError,
    SessionExpiredError,
    NodeExistsError,
    NoNodeError,
    BadVersionError,
    NotEmptyError,
)

_OPERATIONS: Final = (Create, SetData, Delete, Check)

Frame: TypeAlias = tuple[int, Message]


class TooLargeError(MetadataStoreError):
    """The request is larger than a keeper takes: nothing was sent."""


def encode_frame(request_id: int, message: Message) -> Outgoing:
    """Return a framed message; MessageError when it holds a value that has no room."""
    head = bytearray(_HEAD.size)
    pieces: list[Records] = []
    last = encode(message, 0, head, pieces)
    pieces.append(last)
    size = sum(map(len, pieces))
    _HEAD.pack_into(head, 0, size - 4, request_id, _KIND_OF[type(message)])
    return Outgoing(pieces, size)


def decode_frame(frame: memoryview, max_elements: int) -> Frame:
    """Return request id and message of a frame without its size; ProtocolError for anything else
    than one whole message.
    """
    try:
        request_id, kind = _START.unpack_from(frame)
    except struct.error as error:
        raise ProtocolError("a keeper's frame is cut off") from error
    if not 0 <= kind < len(KINDS):
        raise ProtocolError(f"a keeper's frame is of kind {kind}")
    message, end = decode(KINDS[kind], 0, frame, _START.size, max_elements)
    if end != len(frame):
        raise ProtocolError(f"{len(frame) - end} bytes follow a {KINDS[kind].__name__}")
    return request_id, message


def check_path(path: str) -> str:
    """Return a path; ProtocolError for a text that is none."""
    if path != "/" and (not path.startswith("/") or path.endswith("/") or "//" in path):
        raise ProtocolError(f"not a path: {path[:100]!r}")
    return path


def stored_operations(operations: Iterable[Operation]) -> list[StoredOperation]:
    """Return operations as they are sent."""
    stored = []
    for each in operations:
        match each:
            case Create():
                stored.append(
                    StoredOperation(
                        kind=0, path=each.path, data=each.data, ephemeral=each.ephemeral
                    )
                )
            case SetData():
                stored.append(
                    StoredOperation(kind=1, path=each.path, data=each.data, version=each.version)
                )
            case Delete():
                stored.append(StoredOperation(kind=2, path=each.path, version=each.version))
            case Check():
                stored.append(StoredOperation(kind=3, path=each.path, version=each.version))
    return stored


def operations_of(stored: Iterable[StoredOperation]) -> list[Operation]:
    """Return operations as they were sent; ProtocolError for one that is none."""
    operations: list[Operation] = []
    for each in stored:
        path = check_path(each.path)
        if each.kind == 0:
            if path == "/":
                raise ProtocolError("the root is always there")
            operations.append(Create(path, each.data, ephemeral=each.ephemeral))
        elif each.kind == 1:
            operations.append(SetData(path, each.data, each.version))
        elif each.kind == 2:
            if path == "/":
                raise ProtocolError("the root cannot be deleted")
            operations.append(Delete(path, each.version))
        elif each.kind == 3:
            operations.append(Check(path, each.version))
        else:
            raise ProtocolError(f"an operation is of kind {each.kind}")
    return operations


def read_nodes(nodes: Mapping[str, Node]) -> list[ReadNode]:
    """Return nodes as they are sent."""
    return [
        ReadNode(
            path=path,
            data=node.data,
            version=node.version,
            creation_id=node.creation_id,
            owner=node.owner,
        )
        for path, node in nodes.items()
    ]


def nodes_of(read: Iterable[ReadNode]) -> dict[str, Node]:
    """Return nodes as they were sent."""
    return {each.path: Node(each.data, each.version, each.creation_id, each.owner) for each in read}


def changed(done: Sequence[Done]) -> Changed:
    """Return what operations have left, as it is sent."""
    return Changed(
        done=[OperationDone(version=each.version, creation_id=each.creation_id) for each in done]
    )


def failed(error: MetadataStoreError) -> Failed:
    """Return a refusal as it is sent."""
    return Failed(error=ERRORS.index(type(error)), path=error.path)


def error_of(answer: Failed) -> MetadataStoreError:
    """Return a refusal as it was sent; ProtocolError where there is no such error."""
    if not 0 <= answer.error < len(ERRORS):
        raise ProtocolError(f"a keeper answers error {answer.error}")
    return ERRORS[answer.error](answer.path)
