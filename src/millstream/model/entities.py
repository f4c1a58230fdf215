"""Small pieces of cluster metadata that every broker keeps whole: rules of access, users, quotas,
delegation tokens.

An entity has a kind, a key and a value, which is what the metadata store holds for it: a mapping of
texts. The controller alone changes entities; it stores a change, then pushes the entities that have
changed to every broker (all of them to a broker that has registered). What an entity means is
decided by who reads it: the authorizer, the credentials, the quotas.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping
from enum import Enum
from typing import Any, Protocol, TypeAlias

from millstream.model.deferred import Deferred


class EntityKind(Enum):
    """A kind of entity; the value is its code in PushMetadata."""

    ACL = 1
    """The rules of one resource pattern. Key: type, pattern type and name."""
    USER = 2
    """SCRAM credentials and quotas of a user. Key: the user, or ``<default>``."""
    CLIENT = 3
    """Quotas of a client id. Key: the client id, or ``<default>``."""
    USER_CLIENT = 4
    """Quotas of a client id of a user. Key: both."""
    IP = 5
    """Quotas of an address. Key: the address, or ``<default>``."""
    DELEGATION_TOKEN = 6
    """A delegation token (KIP-48). Key: its id."""
    CLIENT_METRICS = 7
    """A subscription to metrics of clients (KIP-714). Key: its name."""


EntityValue: TypeAlias = Mapping[str, str]
EntityChanges: TypeAlias = Mapping[str, EntityValue | None]
"""New values by key; None deletes an entity."""

Decide: TypeAlias = Callable[
    [Mapping[str, EntityValue]], EntityChanges | Coroutine[Deferred[Any], None, EntityChanges]
]
"""Computes changes from the present entities of a kind, within one step of the controller: no other
change comes between, also where it is a coroutine because it takes long. A KafkaError that it
raises is the outcome."""


class EntitiesView(Protocol):
    """The entities that this broker knows."""

    def all(self, kind: EntityKind) -> Mapping[str, EntityValue]:
        """Return the entities of a kind, by key."""

    def watch(self, kind: EntityKind, callback: Callable[[Iterable[str]], None]) -> None:
        """Call ``callback(keys)`` whenever entities of a kind have changed or are gone."""
