"""AlterUserScramCredentials (key 51), version 0 (KIP-554).

The client sends the salted password; the broker keeps what it needs to verify a proof of it. Any
broker passes the request on to the controller. Each user has its own outcome, and can be named
once. Unlike Apache Kafka, the salted password has to have the size of the mechanism's hash:
nobody could authenticate with another one.
"""

from __future__ import annotations

from collections.abc import Mapping

from millstream.handlers.inter_broker import forward, is_elsewhere
from millstream.handlers.request import RequestContext
from millstream.model.entities import EntityChanges, EntityKind, EntityValue
from millstream.model.errors import KafkaError
from millstream.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from millstream.runtime.services import Services
from millstream.security.scram_changes import Deletion, Outcomes, Upsertion, plan_changes


async def handle(
    services: Services, context: RequestContext, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    """Set and delete credentials."""
    deletions = [Deletion(each.name, each.mechanism) for each in request.deletions]
    upsertions = [
        Upsertion(
            each.name,
            each.mechanism,
            each.iterations,
            bytes(each.salt),
            bytes(each.salted_password),
        )
        for each in request.upsertions
    ]
    if is_elsewhere(services):
        return await forward(services, context, request, AlterUserScramCredentialsResponse)
    outcomes: Outcomes = {}

    def decide(present: Mapping[str, EntityValue]) -> EntityChanges:
        changes, found = plan_changes(present, deletions, upsertions)
        outcomes.update(found)
        return changes

    await services.controller.change_entities(EntityKind.USER, decide)
    return AlterUserScramCredentialsResponse(
        results=[_result(user, error) for user, error in outcomes.items()]
    )


def failed(
    context: RequestContext, request: AlterUserScramCredentialsRequest, error: KafkaError
) -> AlterUserScramCredentialsResponse:
    """Refuse every user."""
    names = [each.name for each in request.deletions]
    names += [each.name for each in request.upsertions]
    users = dict.fromkeys(names)
    return AlterUserScramCredentialsResponse(results=[_result(user, error) for user in users])


def _result(user: str, error: KafkaError | None) -> AlterUserScramCredentialsResult:
    if error is None:
        return AlterUserScramCredentialsResult(user=user, error_code=0, error_message=None)
    return AlterUserScramCredentialsResult(
        user=user, error_code=error.error.code, error_message=error.message
    )
