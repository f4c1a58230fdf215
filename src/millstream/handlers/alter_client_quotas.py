"""AlterClientQuotas (key 49), versions 0 and 1 (KIP-546).

=======  ====================================================================================
version  what it brings
=======  ====================================================================================
1        flexible
=======  ====================================================================================

Each entity has its own outcome. Any broker passes the request on to the controller. An address is
given in digits: names of hosts, which Kafka looks up, are refused with INVALID_REQUEST.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from millstream.controller.quota_changes import MAX_CHANGES, Alteration, altered, read_alteration
from millstream.handlers.inter_broker import forward, is_elsewhere
from millstream.handlers.request import RequestContext
from millstream.model.entities import EntityKind
from millstream.model.errors import ErrorCode, KafkaError
from millstream.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    ResponseEntryData,
)
from millstream.runtime.services import Services


async def handle(
    services: Services, context: RequestContext, request: AlterClientQuotasRequest
) -> AlterClientQuotasResponse:
    """Change quotas, those of each entity for itself."""
    if is_elsewhere(services):
        return await forward(services, context, request, AlterClientQuotasResponse)
    if sum(len(each.ops) for each in request.entries) > MAX_CHANGES:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation."
        )
    outcomes: dict[frozenset[tuple[str, str | None]], Alteration | KafkaError] = {}
    rows: dict[frozenset[tuple[str, str | None]], list[EntityData]] = {}
    for entry in request.entries:
        entity = frozenset((each.entity_type, each.entity_name) for each in entry.entity)
        if entity in outcomes:
            reason = "Ignoring duplicate entity"
            outcomes[entity] = KafkaError(ErrorCode.INVALID_REQUEST, reason)
        else:
            outcomes[entity] = _read(entry)
            rows[entity] = _named_once(entry.entity)
    refusals: dict[EntityKind, KafkaError] = {}
    if not request.validate_only:
        refusals = await _change(services, outcomes.values())
    entries = []
    for entity, outcome in outcomes.items():
        error = outcome if isinstance(outcome, KafkaError) else refusals.get(outcome.kind)
        entries.append(_result(rows[entity], error))
    return AlterClientQuotasResponse(entries=entries)


def failed(
    context: RequestContext, request: AlterClientQuotasRequest, error: KafkaError
) -> AlterClientQuotasResponse:
    """Refuse every entity."""
    return AlterClientQuotasResponse(
        entries=[_result(each.entity, error) for each in request.entries]
    )


def _read(entry: EntryData) -> Alteration | KafkaError:
    try:
        return read_alteration(
            [(each.entity_type, each.entity_name) for each in entry.entity],
            [(each.key, None if each.remove else each.value) for each in entry.ops],
        )
    except KafkaError as error:
        return error


async def _change(
    services: Services, outcomes: Iterable[Alteration | KafkaError]
) -> dict[EntityKind, KafkaError]:
    """Store alterations, those of each kind in one step; return what was refused."""
    by_kind: dict[EntityKind, list[Alteration]] = {}
    for each in outcomes:
        if isinstance(each, Alteration):
            by_kind.setdefault(each.kind, []).append(each)
    refusals = {}
    for kind, alterations in by_kind.items():
        try:
            await services.controller.change_entities(
                kind, partial(altered, alterations=alterations)
            )
        except KafkaError as error:
            refusals[kind] = error
    return refusals


def _named_once(entity: list[EntityData]) -> list[EntityData]:
    """Return what is answered of an entity: of a type that is named twice, the last name."""
    names = {each.entity_type: each.entity_name for each in entity}
    return [EntityData(entity_type=type_, entity_name=name) for type_, name in names.items()]


def _result(entity: list[EntityData], error: KafkaError | None) -> ResponseEntryData:
    return ResponseEntryData(
        error_code=(ErrorCode.NONE if error is None else error.error).code,
        error_message=None if error is None else error.message,
        entity=entity,
    )
