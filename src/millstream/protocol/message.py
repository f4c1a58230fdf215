"""Messages: structs that are sent on their own and know their versions."""

from __future__ import annotations

from typing import ClassVar, Self, cast

from millstream.protocol.coders import decode, encode
from millstream.protocol.fields import Buffer, parse_versions
from millstream.protocol.schema import Struct


class Message(Struct):
    """A struct with versions; ``flexible`` names those with compact lengths and tagged fields."""

    VERSIONS: ClassVar[range]
    FIRST_FLEXIBLE: ClassVar[int]

    def __init_subclass__(cls, *, versions: str = "", flexible: str = "") -> None:
        super().__init_subclass__()
        if versions:
            first, last = parse_versions(versions)
            cls.VERSIONS = range(first, last + 1)
            cls.FIRST_FLEXIBLE = last + 1 if flexible == "none" else parse_versions(flexible)[0]

    @classmethod
    def is_flexible(cls, version: int) -> bool:
        """True when the version has compact lengths and tagged fields (KIP-482)."""
        return version >= cls.FIRST_FLEXIBLE

    @classmethod
    def decode_body(cls, version: int, buffer: Buffer) -> Self:
        """Read the message at the start of a buffer; ProtocolError when there is none."""
        message, _ = decode(cls, version, buffer)
        return cast(Self, message)

    def encode_body(self, version: int) -> bytes:
        """Return the message without a header; MessageError when the version cannot carry it."""
        return b"".join(cast("list[Buffer]", encode(self, version)))


class Request(Message):
    """What a client sends; ``key`` is the number of its API."""

    API_KEY: ClassVar[int]

    def __init_subclass__(cls, *, key: int, versions: str, flexible: str) -> None:
        super().__init_subclass__(versions=versions, flexible=flexible)
        cls.API_KEY = key


class Response(Message):
    """What a broker answers; ``key`` is the number of its API."""

    API_KEY: ClassVar[int]

    def __init_subclass__(cls, *, key: int, versions: str, flexible: str) -> None:
        super().__init_subclass__(versions=versions, flexible=flexible)
        cls.API_KEY = key
