"""Decoders and encoders in Python by class and version, compiled at first use."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from millstream.model.errors import ProtocolError
from millstream.protocol.decoding import compile_decoder
from millstream.protocol.encoding import MessageError, compile_encoder

if TYPE_CHECKING:
    from millstream.protocol.fields import Buffer
    from millstream.protocol.message import Message
    from millstream.protocol.outgoing import Records

MAX_ELEMENTS: Final = 1 << 24
"""The most array elements and tagged fields of a message, unless the caller passes a lower
limit.
"""

_decoders: dict[tuple[type[Message], int], Callable[..., Any]] = {}
_encoders: dict[tuple[type[Message], int], Callable[..., Any]] = {}


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
        if version not in cls.VERSIONS:
            raise ProtocolError(f"{cls.__name__} has no version {version}")
        decoder = compile_decoder(cls, version, flexible=cls.is_flexible(version))
        _decoders[cls, version] = decoder
    view = buffer if isinstance(buffer, memoryview) else memoryview(buffer)
    try:
        message, position = decoder(view, position, len(view), max_elements)
    except (IndexError, struct.error) as error:
        raise ProtocolError(f"{cls.__name__} v{version} is cut off") from error
    except UnicodeDecodeError as error:
        raise ProtocolError(f"{cls.__name__} v{version} holds text that is no UTF-8") from error
    return message, position


def encode(message: Message, version: int, out: bytearray, pieces: list[Records]) -> bytearray:
    """Append a message to ``out``; full buffers and records go to ``pieces``, the rest is returned.

    MessageError when the version does not exist or has no room for a value.
    """
    cls = type(message)
    encoder = _encoders.get((cls, version))
    if encoder is None:
        if version not in cls.VERSIONS:
            raise MessageError(f"{cls.__name__} has no version {version}")
        encoder = compile_encoder(cls, version, flexible=cls.is_flexible(version))
        _encoders[cls, version] = encoder
    try:
        last: bytearray = encoder(message, out, pieces)
    except (struct.error, TypeError, AttributeError, UnicodeEncodeError) as error:
        raise MessageError(f"{cls.__name__} v{version} cannot hold a value: {error}") from error
    return last
