"""DescribeClientQuotas and AlterClientQuotas as a client sees them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from tests.unit.handlers.admin_broker import AdminBroker

from millstream.model.entities import EntityKind
from millstream.model.errors import ErrorCode
from millstream.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    OpData,
)
from millstream.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

INVALID = ErrorCode.INVALID_REQUEST.code
Entity = tuple[tuple[str, str | None], ...]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[AdminBroker]:
    made = AdminBroker(tmp_path)
    yield made
    made.close()


def alter(
    broker: AdminBroker,
    changes: Mapping[Entity, Mapping[str, float | None]],
    *,
    version: int = 1,
    validate_only: bool = False,
) -> list[tuple[int, str | None]]:
    entries = [
        EntryData(
            entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
            ops=[
                OpData(key=key, value=value or 0.0, remove=value is None)
                for key, value in values.items()
            ],
        )
        for entity, values in changes.items()
    ]
    request = AlterClientQuotasRequest(entries=entries, validate_only=validate_only)
    response = broker.call(request, version, AlterClientQuotasResponse)
    return [(each.error_code, each.error_message) for each in response.entries]


def describe(
    broker: AdminBroker, *parts: tuple[str, int, str | None], strict: bool = False, version: int = 1
) -> dict[Entity, dict[str, float]]:
    response = ask(broker, *parts, strict=strict, version=version)
    assert response.error_code == 0, response.error_message
    return {
        tuple((part.entity_type, part.entity_name) for part in each.entity): {
            value.key: value.value for value in each.values
        }
        for each in response.entries or ()
    }


def ask(
    broker: AdminBroker, *parts: tuple[str, int, str | None], strict: bool = False, version: int = 1
) -> DescribeClientQuotasResponse:
    request = DescribeClientQuotasRequest(
        components=[
            ComponentData(entity_type=kind, match_type=how, match=match)
            for kind, how, match in parts
        ],
        strict=strict,
    )
    return broker.call(request, version, DescribeClientQuotasResponse)


EXACT, DEFAULT, ANY = 0, 1, 2
ANN: Entity = (("user", "ann"),)
EVERYBODY: Entity = (("user", None),)
TOOL: Entity = (("client-id", "tool"),)
ANNS_TOOL: Entity = (("user", "ann"), ("client-id", "tool"))
ADDRESS: Entity = (("ip", "10.0.0.1"),)


@pytest.mark.parametrize("version", [0, 1])
def test_quotas_are_set_described_and_removed(broker: AdminBroker, version: int) -> None:
    quotas: dict[Entity, dict[str, float | None]] = {
        ANN: {"producer_byte_rate": 1024.0, "request_percentage": 12.5},
        EVERYBODY: {"consumer_byte_rate": 2048.0},
        TOOL: {"controller_mutation_rate": 0.5},
        ANNS_TOOL: {"producer_byte_rate": 1.0},
        ADDRESS: {"connection_creation_rate": 7.0},
    }
    assert alter(broker, quotas, version=version) == [(0, None)] * 5
    assert describe(broker, version=version) == quotas
    assert alter(broker, {ANN: {"producer_byte_rate": None, "consumer_byte_rate": None}}) == [
        (0, None)
    ]
    assert describe(broker, ("user", EXACT, "ann"), strict=True) == {
        ANN: {"request_percentage": 12.5}
    }
    alter(broker, {ANN: {"request_percentage": None}})
    assert ANN not in describe(broker)
    assert broker.store.get("/config/clients/tool").result().data == (
        b'{"version":1,"config":{"controller_mutation_rate":"0.5"}}'
    )


def test_filters(broker: AdminBroker) -> None:
    one = {"producer_byte_rate": 1.0}
    alter(broker, dict.fromkeys((ANN, EVERYBODY, TOOL, ANNS_TOOL), one))
    alter(broker, {ADDRESS: {"connection_creation_rate": 1.0}})
    found = {
        "ann": describe(broker, ("user", EXACT, "ann")),
        "default": describe(broker, ("user", DEFAULT, None)),
        "any": describe(broker, ("user", ANY, None)),
        "any strict": describe(broker, ("user", ANY, None), strict=True),
        "both": describe(broker, ("user", ANY, None), ("client-id", EXACT, "tool")),
        "address": describe(broker, ("ip", ANY, None)),
        "nothing strict": describe(broker, strict=True),
    }
    assert {name: set(each) for name, each in found.items()} == {
        "ann": {ANN, ANNS_TOOL},
        "default": {EVERYBODY},
        "any": {ANN, EVERYBODY, ANNS_TOOL},
        "any strict": {ANN, EVERYBODY},
        "both": {ANNS_TOOL},
        "address": {ADDRESS},
        "nothing strict": set(),
    }


@pytest.mark.parametrize(
    ("parts", "code"),
    [
        ([("user", EXACT, None)], INVALID),
        ([("user", DEFAULT, "x")], INVALID),
        ([("user", ANY, "x")], INVALID),
        ([("user", 7, None)], INVALID),
        ([("", EXACT, "x")], INVALID),
        ([("user", EXACT, "x"), ("user", ANY, None)], INVALID),
        ([("ip", ANY, None), ("user", ANY, None)], INVALID),
        ([("team", EXACT, "x")], ErrorCode.UNSUPPORTED_VERSION.code),
    ],
)
def test_what_is_no_filter_is_refused(
    broker: AdminBroker, parts: list[tuple[str, int, str | None]], code: int
) -> None:
    response = ask(broker, *parts)
    assert (response.error_code, response.entries) == (code, None)


@pytest.mark.parametrize(
    ("entity", "values", "words"),
    [
        ((), {"producer_byte_rate": 1.0}, "Invalid empty client quota entity"),
        ((("user", ""),), {"producer_byte_rate": 1.0}, "Empty user not supported"),
        ((("team", "x"),), {"producer_byte_rate": 1.0}, "Unhandled client quota entity type: team"),
        ((("ip", "10.0.0.1"), ("user", "x")), {"connection_creation_rate": 1.0}, "combination"),
        ((("ip", "nowhere"),), {"connection_creation_rate": 1.0}, "not a valid IP"),
        (ADDRESS, {"producer_byte_rate": 1.0}, "Invalid configuration key producer_byte_rate"),
        (ADDRESS, {"connection_creation_rate": 2.0**31}, "too large for an INT"),
        (ANN, {"SCRAM-SHA-256": 1.0}, "Invalid configuration key SCRAM-SHA-256"),
        (ANN, {"producer_byte_rate": -1.0}, "must be greater than 0"),
        (ANN, {"producer_byte_rate": float("nan")}, "must be greater than 0"),
        (ANN, {"producer_byte_rate": 1.5}, "cannot be a fractional value"),
        (ANN, {"producer_byte_rate": 1e30}, "too large for a LONG"),
    ],
)
def test_what_is_no_quota_is_refused(
    broker: AdminBroker, entity: Entity, values: dict[str, float | None], words: str
) -> None:
    ((code, message), kept) = alter(broker, {entity: values, TOOL: {"request_percentage": 1.0}})
    assert code == INVALID
    assert words in str(message)
    assert kept == (0, None)
    assert set(describe(broker)) == {TOOL}


def test_what_is_only_validated_is_not_stored(broker: AdminBroker) -> None:
    outcome = alter(broker, {ANN: {"producer_byte_rate": 1.0}}, validate_only=True)
    assert outcome == [(0, None)]
    assert not describe(broker)


def test_credentials_of_a_user_are_no_quotas_and_stay(broker: AdminBroker) -> None:
    broker.controller.change_entities(
        EntityKind.USER,
        lambda _: {"ann": {"SCRAM-SHA-256": "secret"}, "bob": {"SCRAM-SHA-256": "s"}},
    ).result()
    alter(broker, {ANN: {"producer_byte_rate": 1.0}})
    assert describe(broker) == {ANN: {"producer_byte_rate": 1.0}}
    alter(broker, {ANN: {"producer_byte_rate": None}})
    assert not describe(broker)
    users = broker.metadata.entities.all(EntityKind.USER)
    assert users["ann"] == {"SCRAM-SHA-256": "secret"}
