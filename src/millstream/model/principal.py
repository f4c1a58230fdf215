"""Who a client is, once it is authenticated (Kafka: ``KafkaPrincipal``)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

USER: Final = "User"
"""The type of the principals that authentication yields."""


@dataclass(frozen=True, slots=True)
class KafkaPrincipal:
    """A type and a name. ``token_authenticated`` is true for a client that authenticated with a
    delegation token (KIP-48); it takes no part in comparisons.
    """

    type: str
    name: str
    token_authenticated: bool = field(default=False, compare=False)

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS: Final = KafkaPrincipal(USER, "ANONYMOUS")
"""A client of a listener without authentication."""


def parse_principal(text: str) -> KafkaPrincipal:
    """Read ``Type:name`` (the name may have colons); ValueError for anything else.

    Kafka: ``SecurityUtils.parseKafkaPrincipal``.
    """
    type_, colon, name = text.partition(":")
    if not type_ or not colon:
        raise ValueError(f"expected a string in format principalType:principalName but got {text}")
    return KafkaPrincipal(type_, name)
