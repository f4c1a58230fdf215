"""Changes of SCRAM credentials, as the controller decides them (Kafka: ``ScramControlManager``).

An entity of kind USER has a credential under the name of its mechanism, beside the user's quotas.
A user can be named once in a request; one user's error is not another one's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from millstream.model.entities import EntityChanges, EntityValue
from millstream.model.entity_keys import name_key
from millstream.model.errors import ErrorCode, KafkaError
from millstream.security.sasl.scram_credential import (
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    ScramCredential,
    ScramMechanism,
    credential_of,
    format_credential,
)

MAX_SALT_BYTES: Final = 1024
"""Clients make salts of up to 64 bytes."""

_MECHANISMS: Final = {each.value: each for each in ScramMechanism}


@dataclass(frozen=True, slots=True)
class Deletion:
    """Delete a user's credential; the mechanism by its number in the protocol."""

    user: str
    mechanism: int


@dataclass(frozen=True, slots=True)
class Upsertion:
    """Set a user's credential, from the salted password."""

    user: str
    mechanism: int
    iterations: int
    salt: bytes = field(repr=False)
    salted_password: bytes = field(repr=False)


Outcomes = dict[str, KafkaError | None]
"""What became of each user, in the order of the request; None for a change that is made."""


def plan_changes(
    present: Mapping[str, EntityValue],
    deletions: Sequence[Deletion],
    upsertions: Sequence[Upsertion],
) -> tuple[EntityChanges, Outcomes]:
    """Return the changes of entities, and what to answer for each user."""
    outcomes: Outcomes = {}
    changes: dict[str, EntityValue | None] = {}
    wanted: list[Deletion | Upsertion] = [*deletions, *upsertions]
    for change in wanted:
        key = name_key(change.user)
        if change.user in outcomes:
            if outcomes[change.user] is None:
                del changes[key]
                outcomes[change.user] = KafkaError(
                    ErrorCode.DUPLICATE_RESOURCE,
                    "A user credential cannot be altered twice in the same request",
                )
            continue
        try:
            changes[key] = _changed(present.get(key, {}), change)
        except KafkaError as error:
            outcomes[change.user] = error
        else:
            outcomes[change.user] = None
    return changes, outcomes


def set_credential(
    value: EntityValue, mechanism: ScramMechanism, credential: ScramCredential
) -> EntityValue:
    """Return a user's entity with a credential."""
    return {**value, mechanism.mechanism: format_credential(credential)}


def _changed(value: EntityValue, change: Deletion | Upsertion) -> EntityValue | None:
    if not change.user:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    mechanism = _MECHANISMS.get(change.mechanism)
    if mechanism is None:
        raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if isinstance(change, Deletion):
        if mechanism.mechanism not in value:
            raise KafkaError(
                ErrorCode.RESOURCE_NOT_FOUND,
                "Attempt to delete a user credential that does not exist",
            )
        rest = {name: text for name, text in value.items() if name != mechanism.mechanism}
        return rest or None
    if change.iterations < MIN_ITERATIONS:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if change.iterations > MAX_ITERATIONS:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    if not 0 < len(change.salt) <= MAX_SALT_BYTES:
        raise KafkaError(
            ErrorCode.UNACCEPTABLE_CREDENTIAL, f"A salt has 1 to {MAX_SALT_BYTES} bytes"
        )
    if len(change.salted_password) != mechanism.hash_size:
        raise KafkaError(
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            f"A salted password of {mechanism.mechanism} has {mechanism.hash_size} bytes",
        )
    credential = credential_of(mechanism, change.salted_password, change.salt, change.iterations)
    return set_credential(value, mechanism, credential)
