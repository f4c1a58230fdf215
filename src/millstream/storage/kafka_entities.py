"""Rules of access, quotas, SCRAM users and delegation tokens in Apache Kafka's metadata log, as the
entities that they become.
"""

from __future__ import annotations

import logging
from typing import Final

from millstream.model.acl import Acl, AclOperation, AclResource, PatternType, Permission
from millstream.model.entities import EntityKind, EntityValue
from millstream.model.entity_keys import acl_key, acl_value, name_key, user_client_key
from millstream.model.principal import parse_principal
from millstream.protocol.message import Message
from millstream.protocol.messages.kraft_records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    DelegationTokenRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from millstream.security.delegation_tokens import DelegationToken, write_token
from millstream.security.sasl.scram_credential import (
    ScramCredential,
    ScramMechanism,
    format_credential,
)

log = logging.getLogger(__name__)

_SCRAM: Final = {each.value: each for each in ScramMechanism}


class KafkaEntities:
    """The state that records of rules and quotas lead to."""

    def __init__(self) -> None:
        self._acls: dict[bytes, Acl] = {}
        self._values: dict[EntityKind, dict[str, dict[str, str]]] = {}

    def apply(self, message: Message) -> None:
        """Apply one record; one that means nothing here is left out, with a line in the log."""
        match message:
            case AccessControlEntryRecord():
                acl = _acl(message)
                if acl is not None:
                    self._acls[message.id] = acl
            case RemoveAccessControlEntryRecord():
                self._acls.pop(message.id, None)
            case ClientQuotaRecord():
                self._apply_quota(message)
            case UserScramCredentialRecord():
                credential = ScramCredential(
                    message.salt, message.stored_key, message.server_key, message.iterations
                )
                self._apply_credential(message.name, message.mechanism, credential)
            case RemoveUserScramCredentialRecord():
                self._apply_credential(message.name, message.mechanism, None)
            case DelegationTokenRecord():
                self._apply_token(message)
            case RemoveDelegationTokenRecord():
                tokens = self._values.get(EntityKind.DELEGATION_TOKEN, {})
                tokens.pop(name_key(message.token_id), None)

    def _apply_token(self, record: DelegationTokenRecord) -> None:
        try:
            token = DelegationToken(
                token_id=record.token_id,
                owner=parse_principal(record.owner),
                requester=parse_principal(record.requester or record.owner),
                renewers=tuple(map(parse_principal, record.renewers)),
                issued_ms=record.issue_timestamp,
                expires_ms=record.expiration_timestamp,
                max_ms=record.max_timestamp,
            )
            key = name_key(record.token_id)
        except ValueError:
            log.warning("a delegation token of Apache Kafka that means nothing here")
            return
        tokens = self._values.setdefault(EntityKind.DELEGATION_TOKEN, {})
        tokens[key] = dict(write_token(token))

    def _apply_credential(self, user: str, number: int, credential: ScramCredential | None) -> None:
        if number not in _SCRAM:
            log.warning("user %r has a SCRAM mechanism that is not known: %d", user, number)
            return
        mechanism = _SCRAM[number]
        value = self._values.setdefault(EntityKind.USER, {}).setdefault(name_key(user), {})
        if credential is None:
            value.pop(mechanism.mechanism, None)
        else:
            value[mechanism.mechanism] = format_credential(credential)

    def _apply_quota(self, record: ClientQuotaRecord) -> None:
        entity = _entity({each.entity_type: each.entity_name for each in record.entity})
        if entity is None:
            log.warning("a quota of Apache Kafka that means nothing here: %s", record)
            return
        kind, key = entity
        value = self._values.setdefault(kind, {}).setdefault(key, {})
        if record.remove:
            value.pop(record.key, None)
        else:
            number = record.value
            value[record.key] = str(int(number)) if number == int(number) else repr(number)

    def entities(self) -> dict[EntityKind, dict[str, EntityValue]]:
        """Return what is so after the last record, by kind and key."""
        found: dict[EntityKind, dict[str, EntityValue]] = {
            kind: {key: value for key, value in values.items() if value}
            for kind, values in self._values.items()
        }
        by_pattern: dict[str, list[Acl]] = {}
        for acl in self._acls.values():
            by_pattern.setdefault(acl_key(acl.resource, acl.pattern, acl.name), []).append(acl)
        if by_pattern:
            found[EntityKind.ACL] = {key: acl_value(acls) for key, acls in by_pattern.items()}
        return {kind: values for kind, values in found.items() if values}


def _acl(record: AccessControlEntryRecord) -> Acl | None:
    try:
        acl = Acl(
            resource=AclResource(record.resource_type),
            name=record.resource_name,
            pattern=PatternType(record.pattern_type),
            principal=record.principal,
            host=record.host,
            operation=AclOperation(record.operation),
            permission=Permission(record.permission_type),
        )
        acl_key(acl.resource, acl.pattern, acl.name)
        acl_value([acl])
    except (ValueError, KeyError):
        log.warning("a rule of access of Apache Kafka that means nothing here: %s", record)
        return None
    return acl


def _entity(parts: dict[str, str | None]) -> tuple[EntityKind, str] | None:
    match sorted(parts):
        case ["user"]:
            return EntityKind.USER, name_key(parts["user"])
        case ["client-id"]:
            return EntityKind.CLIENT, name_key(parts["client-id"])
        case ["client-id", "user"]:
            return EntityKind.USER_CLIENT, user_client_key(parts["user"], parts["client-id"])
        case ["ip"]:
            return EntityKind.IP, name_key(parts["ip"])
        case _:
            return None
