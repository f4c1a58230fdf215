"""Frames to messages and back: what the connections of broker and client call.

An encoded message begins with its frame size; a frame given to a decoder has lost it (see
:mod:`millstream.protocol.framing`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from typing import Final, cast

from millstream.model.errors import ProtocolError
from millstream.protocol.api import request_class, response_class
from millstream.protocol.coders import new_function
from millstream.protocol.compile import MAX_ELEMENTS, decode, encode
from millstream.protocol.encoding import MessageError
from millstream.protocol.fields import Buffer
from millstream.protocol.headers import (
    MAX_HEADER_TAGS,
    RequestHeader,
    decode_request_header,
    request_header_is_flexible,
    response_header_is_flexible,
)
from millstream.protocol.message import Request, Response
from millstream.protocol.native_codec import Kind
from millstream.protocol.outgoing import Outgoing, Records
from millstream.protocol.primitives import skip_tags

__all__ = [
    "MessageError",
    "RequestHeader",
    "decode_request",
    "decode_request_header",
    "decode_response",
    "encode_request",
    "encode_response",
]

MAX_REQUEST_ELEMENTS: Final = 1 << 18
"""Array elements and tagged fields in one request. A struct costs some 100 bytes of memory, so a
hostile frame can make the broker hold a few tens of MB and no more.
"""

_SIZE: Final = struct.Struct(">i")
_CORRELATION: Final = struct.Struct(">4xi")
_CORRELATION_TAGS: Final = struct.Struct(">4xix")
_REQUEST_START: Final = struct.Struct(">4xhhih")


_request_decoders: dict[tuple[int, int], Callable[[memoryview, int], Request]] = {}
_response_encoders: dict[tuple[int, int], Callable[[int, Response], Outgoing]] = {}
_request_encoders: dict[
    tuple[type[Request], int], Callable[[Request, int, str | None], Outgoing]
] = {}
_response_decoders: dict[tuple[int, int], Callable[[Buffer], tuple[int, Response]]] = {}


def encode_request(
    message: Request, version: int, correlation_id: int, client_id: str | None
) -> Outgoing:
    """Return a framed request; MessageError when the version cannot carry it."""
    cls = type(message)
    encoder = _request_encoders.get((cls, version))
    if encoder is None:
        encoder = new_function(
            Kind.ENCODE_REQUEST,
            cls,
            version,
            partial(_encode_request_in_python, version),
            flexible_header=request_header_is_flexible(cls.API_KEY, version),
        )
        _request_encoders[cls, version] = encoder
    return encoder(message, correlation_id, client_id)


def _encode_request_in_python(
    version: int, message: Request, correlation_id: int, client_id: str | None
) -> Outgoing:
    key = message.API_KEY
    name = b"" if client_id is None else client_id.encode()
    length = -1 if client_id is None else len(name)
    head = bytearray(_REQUEST_START.pack(key, version, correlation_id, length))
    head += name
    if request_header_is_flexible(key, version):
        head.append(0)
    pieces: list[Records] = []
    return _framed(head, pieces, encode(message, version, head, pieces))


def encode_response(key: int, version: int, correlation_id: int, message: Response) -> Outgoing:
    """Return a framed response; MessageError when the version cannot carry it."""
    return response_encoder(key, version)(correlation_id, message)


def response_encoder(key: int, version: int) -> Callable[[int, Response], Outgoing]:
    """Return the encoder of the responses of one API and version: (correlation id, message) to
    pieces.

    Raises MessageError at once for an unsupported version; the encoder raises as
    :func:`encode_response`.
    """
    known = _response_encoders.get((key, version))
    if known is not None:
        return known
    cls = response_class(key)
    if version not in cls.VERSIONS:
        raise MessageError(f"{cls.__name__} has no version {version}")
    flexible = response_header_is_flexible(key, version)
    start = (_CORRELATION_TAGS if flexible else _CORRELATION).pack

    def encode_in_python(correlation_id: int, message: Response) -> Outgoing:
        head = bytearray(start(correlation_id))
        pieces: list[Records] = []
        return _framed(head, pieces, encode(message, version, head, pieces))

    encoder = new_function(
        Kind.ENCODE_RESPONSE, cls, version, encode_in_python, flexible_header=flexible
    )
    _response_encoders[key, version] = encoder
    return encoder


def _framed(head: bytearray, pieces: list[Records], last: bytearray) -> Outgoing:
    """Write the frame size into ``head``, which is ``last`` where there are no ``pieces``."""
    if not pieces:
        size = len(head)
        _SIZE.pack_into(head, 0, size - 4)
        return Outgoing([head], size)
    if last:
        pieces.append(last)
    size = sum(map(len, pieces))
    _SIZE.pack_into(head, 0, size - 4)
    return Outgoing(pieces, size)


def request_decoder(key: int, version: int) -> Callable[[memoryview, int], Request]:
    """Return the decoder of the request bodies of one API and version: (frame, position) to a
    request.

    Raises ProtocolError at once for an unsupported version; the decoder raises as
    :func:`decode_request`.
    """
    known = _request_decoders.get((key, version))
    if known is not None:
        return known
    cls = request_class(key)
    if version not in cls.VERSIONS:
        raise ProtocolError(f"{cls.__name__} has no version {version}")

    def decode_in_python(frame: memoryview, position: int) -> Request:
        message, _ = decode(cls, version, frame, position, MAX_REQUEST_ELEMENTS)
        return cast(Request, message)

    decoder = new_function(
        Kind.DECODE_REQUEST, cls, version, decode_in_python, max_elements=MAX_REQUEST_ELEMENTS
    )
    _request_decoders[key, version] = decoder
    return decoder


def decode_request(header: RequestHeader, frame: memoryview) -> Request:
    """Decode the body of a request; ProtocolError if its version is not supported or its bytes are
    invalid.

    Records in the message are views of ``frame`` and valid as long as it is.
    """
    return request_decoder(header.key, header.version)(frame, header.body_position)


def decode_response(key: int, version: int, frame: Buffer) -> tuple[int, Response]:
    """Return (correlation id, message) of a response; the client passes the API and version of its
    request.
    """
    decoder = _response_decoders.get((key, version))
    if decoder is None:
        decoder = new_function(
            Kind.DECODE_RESPONSE,
            response_class(key),
            version,
            partial(_decode_response_in_python, key, version),
            max_elements=MAX_ELEMENTS,
            flexible_header=response_header_is_flexible(key, version),
        )
        _response_decoders[key, version] = decoder
    return decoder(frame)


def _decode_response_in_python(key: int, version: int, frame: Buffer) -> tuple[int, Response]:
    view = memoryview(frame)
    try:
        (correlation_id,) = _SIZE.unpack_from(view)
        position = 4
        if response_header_is_flexible(key, version):
            position, _ = skip_tags(view, position, len(view), MAX_HEADER_TAGS)
    except (struct.error, IndexError) as error:
        raise ProtocolError("a response header is cut off") from error
    message, _ = decode(response_class(key), version, view, position)
    return correlation_id, cast(Response, message)
