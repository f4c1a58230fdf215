"""The functions that decode and encode messages: in C where it is there, else in Python.

Both are made at the first use of a class in a version and give the same results and the same
errors. Those in C (:mod:`millstream.protocol.native_codec`) hand over to those in Python
(:mod:`millstream.protocol.compile`) whatever is not plainly right, which are compiled then.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from millstream.protocol import compile as in_python
from millstream.protocol.compile import MAX_ELEMENTS
from millstream.protocol.native_codec import Kind, native_codec

if TYPE_CHECKING:
    from millstream.protocol.fields import Buffer
    from millstream.protocol.message import Message
    from millstream.protocol.outgoing import Records

Decoder: TypeAlias = "Callable[[Buffer, int, int], tuple[Message, int]]"
"""(buffer, position, most elements) to (message, position behind it)."""

Encoder: TypeAlias = "Callable[[Message], list[Records]]"

_decoders: dict[tuple[type[Message], int], Decoder] = {}
_encoders: dict[tuple[type[Message], int], Encoder] = {}


def decode(
    cls: type[Message],
    version: int,
    buffer: Buffer,
    position: int = 0,
    max_elements: int = MAX_ELEMENTS,
) -> tuple[Message, int]:
    """Return (message, position after it); ProtocolError if the bytes are not a valid message.

    Bytes after the message are ignored, as in Apache Kafka.
    """
    decoder = _decoders.get((cls, version))
    if decoder is None:
        decoder = new_function(Kind.DECODE, cls, version, partial(in_python.decode, cls, version))
        _decoders[cls, version] = decoder
    return decoder(buffer, position, max_elements)


def encode(message: Message, version: int) -> list[Records]:
    """Return the pieces of a message without a header; MessageError when the version does not exist
    or has no room for a value.
    """
    cls = type(message)
    encoder = _encoders.get((cls, version))
    if encoder is None:
        encoder = new_function(Kind.ENCODE, cls, version, partial(_encode_in_python, version))
        _encoders[cls, version] = encoder
    return encoder(message)


def _encode_in_python(version: int, message: Message) -> list[Records]:
    pieces: list[Records] = []
    pieces.append(in_python.encode(message, version, bytearray(), pieces))
    return pieces


def new_function(
    kind: Kind,
    cls: type[Message],
    version: int,
    fallback: Callable[..., Any],
    *,
    max_elements: int = 0,
    flexible_header: bool = False,
) -> Callable[..., Any]:
    """Return the function of a kind in C; ``fallback``, which is the same in Python, where there is
    none, or no such version.
    """
    native = native_codec()
    if native is None or version not in cls.VERSIONS:
        return fallback
    return native.function(
        kind,
        cls,
        version,
        fallback,
        max_elements=max_elements,
        flexible_header=flexible_header,
    )
