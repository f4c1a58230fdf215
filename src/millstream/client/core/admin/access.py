"""ACLs, quotas, SCRAM credentials."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from millstream.client.core.admin.outcome import Outcome, Outcomes, done, refusal
from millstream.client.core.admin.routing import Routing
from millstream.model.acl import Acl, AclFilter, AclOperation, AclResource, PatternType, Permission
from millstream.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    OpData,
)
from millstream.protocol.messages.alter_client_quotas import EntityData as AlteredEntity
from millstream.protocol.messages.alter_client_quotas import EntryData as AlteredEntry
from millstream.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from millstream.protocol.messages.create_acls import (
    AclCreation,
    CreateAclsRequest,
    CreateAclsResponse,
)
from millstream.protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from millstream.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from millstream.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from millstream.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)

_EXACT: Final = 0
_DEFAULT: Final = 1
_ANY: Final = 2
_SALT_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class QuotaEntity:
    """The entity of a quota: pairs of a type (``user``, ``client-id``, ``ip``) and a name.

    None for a name is the default of all entities without their own quota.
    """

    parts: tuple[tuple[str, str | None], ...]


class ScramMechanism(IntEnum):
    """The SCRAM mechanism of a credential (RFC 5802)."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """One credential of a user, without its secret."""

    mechanism: ScramMechanism
    iterations: int


class Access(Routing):
    """Operations on ACLs, quotas and credentials."""

    async def describe_acls(self, matching: AclFilter) -> list[Acl]:
        """Return the rules that a filter matches."""
        request = DescribeAclsRequest(
            resource_type_filter=matching.resource,
            resource_name_filter=matching.name,
            pattern_type_filter=matching.pattern,
            principal_filter=matching.principal,
            host_filter=matching.host,
            operation=matching.operation,
            permission_type=matching.permission,
        )
        response = await self.ask_any(request, DescribeAclsResponse)
        _raise(response.error_code, response.error_message, "rules")
        return [
            Acl(
                resource=AclResource(resource.resource_type),
                name=resource.resource_name,
                pattern=PatternType(resource.pattern_type),
                principal=each.principal,
                host=each.host,
                operation=AclOperation(each.operation),
                permission=Permission(each.permission_type),
            )
            for resource in response.resources
            for each in resource.acls
        ]

    async def create_acls(self, acls: Iterable[Acl]) -> Outcomes[Acl, None]:
        """Add rules."""

        async def ask(pending: list[Acl]) -> dict[Acl, Outcome[None]]:
            request = CreateAclsRequest(
                creations=[
                    AclCreation(
                        resource_type=acl.resource,
                        resource_name=acl.name,
                        resource_pattern_type=acl.pattern,
                        principal=acl.principal,
                        host=acl.host,
                        operation=acl.operation,
                        permission_type=acl.permission,
                    )
                    for acl in pending
                ]
            )
            response = await self.ask_controller(request, CreateAclsResponse)
            return {
                acl: done(row.error_code, row.error_message, f"a rule for {acl.principal}")
                for acl, row in zip(pending, response.results, strict=True)
            }

        return await self.each(acls, ask)

    async def delete_acls(self, filters: Iterable[AclFilter]) -> Outcomes[AclFilter, list[Acl]]:
        """Delete the rules that filters match; return the deleted ones."""

        async def ask(pending: list[AclFilter]) -> dict[AclFilter, Outcome[list[Acl]]]:
            request = DeleteAclsRequest(
                filters=[
                    DeleteAclsFilter(
                        resource_type_filter=each.resource,
                        resource_name_filter=each.name,
                        pattern_type_filter=each.pattern,
                        principal_filter=each.principal,
                        host_filter=each.host,
                        operation=each.operation,
                        permission_type=each.permission,
                    )
                    for each in pending
                ]
            )
            response = await self.ask_controller(request, DeleteAclsResponse)
            return {
                each: Outcome(
                    [_acl(acl) for acl in row.matching_acls if not acl.error_code],
                    refusal(row.error_code, row.error_message, "rules"),
                )
                for each, row in zip(pending, response.filter_results, strict=True)
            }

        return await self.each(filters, ask)

    async def describe_client_quotas(
        self, entities: Mapping[str, str | None] | None = None, *, strict: bool = False
    ) -> dict[QuotaEntity, dict[str, float]]:
        """Return quotas: of all entities, or of those with these parts.

        A name of ``"*"`` is any name and the default, None the default alone. ``strict`` leaves
        out entities with other parts beside.
        """
        request = DescribeClientQuotasRequest(
            components=[
                ComponentData(
                    entity_type=kind,
                    match_type=_ANY if name == "*" else _DEFAULT if name is None else _EXACT,
                    match=None if name == "*" else name,
                )
                for kind, name in (entities or {}).items()
            ],
            strict=strict,
        )
        response = await self.ask_any(request, DescribeClientQuotasResponse)
        _raise(response.error_code, response.error_message, "quotas")
        return {
            QuotaEntity(tuple((each.entity_type, each.entity_name) for each in entry.entity)): {
                each.key: each.value for each in entry.values
            }
            for entry in response.entries or ()
        }

    async def alter_client_quotas(
        self,
        changes: Mapping[QuotaEntity, Mapping[str, float | None]],
        *,
        validate_only: bool = False,
    ) -> Outcomes[QuotaEntity, None]:
        """Set quotas of entities, as ``{"producer_byte_rate": 1e6}``; None removes one."""

        async def ask(pending: list[QuotaEntity]) -> dict[QuotaEntity, Outcome[None]]:
            request = AlterClientQuotasRequest(
                entries=[
                    AlteredEntry(
                        entity=[
                            AlteredEntity(entity_type=kind, entity_name=name)
                            for kind, name in entity.parts
                        ],
                        ops=[
                            OpData(key=key, value=value or 0.0, remove=value is None)
                            for key, value in changes[entity].items()
                        ],
                    )
                    for entity in pending
                ],
                validate_only=validate_only,
            )
            response = await self.ask_controller(request, AlterClientQuotasResponse)
            return {
                entity: done(row.error_code, row.error_message, "a quota")
                for entity, row in zip(pending, response.entries, strict=True)
            }

        return await self.each(changes, ask)

    async def describe_user_scram_credentials(
        self, users: Sequence[str] | None = None
    ) -> Outcomes[str, list[ScramCredential]]:
        """Return the mechanisms of users, or of all that have some."""
        request = DescribeUserScramCredentialsRequest(
            users=None if users is None else [UserName(name=user) for user in users]
        )
        response = await self.ask_any(request, DescribeUserScramCredentialsResponse)
        _raise(response.error_code, response.error_message, "credentials")
        return Outcomes(
            {
                row.user: Outcome(
                    [
                        ScramCredential(ScramMechanism(each.mechanism), each.iterations)
                        for each in row.credential_infos
                    ],
                    refusal(row.error_code, row.error_message, f"user {row.user!r}"),
                )
                for row in response.results
            }
        )

    async def alter_user_scram_credentials(
        self,
        passwords: Mapping[str, str | None],
        *,
        mechanism: ScramMechanism = ScramMechanism.SCRAM_SHA_512,
        iterations: int = 8192,
    ) -> Outcomes[str, None]:
        """Set users' passwords for a mechanism; None removes the credential.

        The password itself does not leave this process: brokers get salt and salted password.
        """

        async def ask(pending: list[str]) -> dict[str, Outcome[None]]:
            upsertions, deletions = [], []
            for user in pending:
                password = passwords[user]
                if password is None:
                    deletions.append(ScramCredentialDeletion(name=user, mechanism=mechanism))
                else:
                    upsertions.append(self._upsertion(user, password, mechanism, iterations))
            request = AlterUserScramCredentialsRequest(deletions=deletions, upsertions=upsertions)
            response = await self.ask_controller(request, AlterUserScramCredentialsResponse)
            return {
                row.user: done(row.error_code, row.error_message, f"user {row.user!r}")
                for row in response.results
            }

        return await self.each(passwords, ask)

    def _upsertion(
        self, user: str, password: str, mechanism: ScramMechanism, iterations: int
    ) -> ScramCredentialUpsertion:
        salt = self.loop.random_bytes(_SALT_BYTES)
        algorithm = "sha256" if mechanism is ScramMechanism.SCRAM_SHA_256 else "sha512"
        return ScramCredentialUpsertion(
            name=user,
            mechanism=mechanism,
            iterations=iterations,
            salt=salt,
            salted_password=hashlib.pbkdf2_hmac(algorithm, password.encode(), salt, iterations),
        )


def _acl(row: DeleteAclsMatchingAcl) -> Acl:
    return Acl(
        resource=AclResource(row.resource_type),
        name=row.resource_name,
        pattern=PatternType(row.pattern_type),
        principal=row.principal,
        host=row.host,
        operation=AclOperation(row.operation),
        permission=Permission(row.permission_type),
    )


def _raise(code: int, message: str | None, about: str) -> None:
    error = refusal(code, message, about)
    if error is not None:
        raise error
