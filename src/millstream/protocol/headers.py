"""What stands in front of every message.

Request, by header version (all behind the int32 frame size)::

    key int16 | version int16 | correlation id int32 | client id: int16 length, text | v2: tags

Response::

    correlation id int32 | v1: tags

Header v2 and v1 belong to the flexible versions of an API. The client id keeps its two-byte
length in v2, so that a broker reads it before it knows the version; and the response to
ApiVersions keeps header v0 in every version, so that a client reads it before it knows the broker.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from ctypes import c_int16
from dataclasses import dataclass
from functools import cache
from typing import Final

from millstream.model.errors import ProtocolError
from millstream.native.interpreter import slots_of
from millstream.protocol.api import APIS, FIRST_INTERNAL_KEY, ApiKey
from millstream.protocol.native_codec import Kind, native_codec
from millstream.protocol.native_tables import HeaderCodec
from millstream.protocol.primitives import skip_tags

MAX_HEADER_TAGS: Final = 256
_REQUEST_START: Final = struct.Struct(">hhih")


@dataclass(slots=True)
class RequestHeader:
    """The header of one request; ``body_position`` is where its body begins in the frame."""

    key: int
    version: int
    correlation_id: int
    client_id: str | None
    body_position: int


def request_header_is_flexible(key: int, version: int) -> bool:
    """True for request header v2; ProtocolError for an unknown key."""
    api = APIS.get(key)
    if api is None:
        raise ProtocolError(f"there is no API with key {key}")
    return version >= api.first_flexible


def response_header_is_flexible(key: int, version: int) -> bool:
    """True for response header v1; ProtocolError for an unknown key."""
    return key != ApiKey.API_VERSIONS and request_header_is_flexible(key, version)


@cache
def header_decoder() -> Callable[[memoryview], RequestHeader]:
    """Return what :func:`decode_request_header` does, in C where it is there; made once."""
    native = native_codec()
    names = ("key", "version", "correlation_id", "client_id", "body_position")
    slots = None if native is None else slots_of(RequestHeader, names)
    if native is None or slots is None:
        return decode_request_header
    count = max(key for key in APIS if key < FIRST_INTERNAL_KEY) + 1
    first_flexible = (c_int16 * count)(
        *(APIS[key].first_flexible if key in APIS else -1 for key in range(count))
    )
    codec = HeaderCodec(
        fallback=id(decode_request_header),
        type=id(RequestHeader),
        first_flexible=ctypes.addressof(first_flexible),
        key_count=count,
        key_slot=slots["key"],
        version_slot=slots["version"],
        correlation_id_slot=slots["correlation_id"],
        client_id_slot=slots["client_id"],
        position_slot=slots["body_position"],
    )
    kept = (decode_request_header, RequestHeader, first_flexible)
    return native.new(Kind.DECODE_HEADER, codec, *kept)


def decode_request_header(frame: memoryview) -> RequestHeader:
    """Read the header of a frame (without its four size bytes).

    ProtocolError for an unknown key and for anything that is no header. The version is not
    checked: an ApiVersions request is answered in every version.
    """
    try:
        key, version, correlation_id, length = _REQUEST_START.unpack_from(frame)
        api = APIS.get(key)
        if api is None:
            raise ProtocolError(f"there is no API with key {key}")
        position = 10
        client_id = None
        if length >= 0:
            position += length
            if position > len(frame):
                raise ProtocolError(f"the client id claims {length} bytes, more than there are")
            client_id = str(frame[10:position], "utf-8")
        if version >= api.first_flexible:
            if frame[position]:
                position, _ = skip_tags(frame, position, len(frame), MAX_HEADER_TAGS)
            else:
                position += 1
    except (struct.error, IndexError) as error:
        raise ProtocolError("a request header is cut off") from error
    except UnicodeDecodeError as error:
        raise ProtocolError("a client id is no UTF-8") from error
    return RequestHeader(key, version, correlation_id, client_id, position)
