"""The SCRAM credentials of the users that the metadata store holds, by name.

An entity of kind USER has a credential under the name of its mechanism, as Kafka writes it in
ZooKeeper.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from itertools import islice
from typing import Final

from millstream.model.entities import EntitiesView, EntityKind
from millstream.model.entity_keys import name_key
from millstream.security.sasl.scram import FindCredential
from millstream.security.sasl.scram_credential import (
    CredentialShape,
    ScramCredential,
    ScramMechanism,
    parse_credential,
)

log = logging.getLogger(__name__)

_LOOKED_AT: Final = 100
"""Users among whom one with a credential is looked for; the others may have quotas alone."""


class ScramUsers:
    """Finds credentials in the entities that this broker knows."""

    def __init__(self, entities: EntitiesView) -> None:
        self._entities: Final = entities

    def shape(self, mechanism: ScramMechanism) -> CredentialShape:
        """Return how a credential of a mechanism looks here: like that of the first user who has
        one, for the users of a cluster are mostly added with the same tool.
        """
        users = self._entities.all(EntityKind.USER)
        for key in islice(users, _LOOKED_AT):
            text = users[key].get(mechanism.mechanism)
            if text is not None:
                with suppress(ValueError):
                    found = parse_credential(text)
                    return CredentialShape(len(found.salt), found.iterations)
        return CredentialShape()

    def of(self, mechanism: ScramMechanism) -> FindCredential:
        """Return what finds the credentials of a mechanism."""

        def find(username: str) -> ScramCredential | None:
            value = self._entities.all(EntityKind.USER).get(name_key(username))
            text = None if value is None else value.get(mechanism.mechanism)
            if text is None:
                return None
            try:
                return parse_credential(text)
            except ValueError:
                log.warning("the %s credential of a user cannot be read", mechanism.mechanism)
                return None

        return find
