"""Events for tests of the audit log, and a check of records against the schema."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from millstream.model.acl import AclOperation, AclResource
from millstream.protocol.api import ApiKey
from millstream.security.audit.event import (
    Authentication,
    Authorization,
    Moment,
    Origin,
    RequestHead,
)
from millstream.security.audit.kinds import CLASSES, EventKind, Outcome
from millstream.security.audit.machine import AuditMachine, Destination, Entry, Policy
from millstream.security.audit.record import SCHEMA
from millstream.security.authorizer import DEFAULT_DENY, SUPER_USER, Decision

ANN = Origin("User:ann", "10.0.0.7", 4242, "CLIENTS", "SASL_SSL", "SCRAM-SHA-512", "ann")


def at(milliseconds: float) -> Moment:
    return Moment(1_700_000_000_000 + int(milliseconds), milliseconds)


def login(outcome: Outcome = Outcome.FAILED, reason: str = "no") -> Authentication:
    return Authentication(ANN, outcome, reason if outcome is Outcome.FAILED else "")


def decided(
    kind: EventKind = EventKind.MANAGEMENT,
    *,
    is_allowed: bool = True,
    name: str = "t",
    origin: Origin = ANN,
) -> Authorization:
    return Authorization(
        kind,
        origin,
        RequestHead(ApiKey.CREATE_TOPICS, 7, 3, "a client"),
        Decision(is_allowed, SUPER_USER if is_allowed else DEFAULT_DENY),
        AclOperation.CREATE,
        AclResource.TOPIC,
        name,
    )


class Site:
    """A machine whose records are kept as long as there is room for them."""

    def __init__(self, room: int = 1_000_000, **changes: Any) -> None:
        self.entries: list[Entry] = []
        self.room = room
        policy = {
            "routes": dict.fromkeys(CLASSES, Destination.TOPIC),
            "max_events_per_second": 1_000,
            "burst_events": 1_000,
            "repeat_interval_ms": 60_000,
        }
        self.machine = AuditMachine(
            Policy(**(policy | changes)),
            source="/clusters/c/brokers/1",
            run="1-abc",
            now=at(0),
            emit=self._emit,
        )

    def _emit(self, entry: Entry) -> bool:
        if not self.room:
            return False
        self.room -= 1
        self.entries.append(entry)
        return True

    @property
    def records(self) -> list[dict[str, Any]]:
        return [json.loads(each.value) for each in self.entries]


def check(value: object, schema: Mapping[str, Any] = SCHEMA, path: str = "record") -> None:
    """Fail unless a value is as a schema says; of JSON Schema what ours uses."""
    if "oneOf" in schema:
        fitting, reasons = 0, []
        for each in schema["oneOf"]:
            try:
                check(value, each, path)
                fitting += 1
            except AssertionError as error:
                reasons.append(str(error))
        assert fitting == 1, f"{path} is one of {fitting}: {reasons}"
        return
    if "const" in schema:
        assert value == schema["const"], f"{path} is {value!r}, not {schema['const']!r}"
    if "enum" in schema:
        assert value in schema["enum"], f"{path} is {value!r}, none of {schema['enum']}"
    if "type" in schema:
        kinds: dict[str, Any] = {
            "string": str,
            "integer": int,
            "boolean": bool,
            "object": dict,
            "array": list,
            "null": type(None),
        }
        wanted = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        assert isinstance(value, tuple(kinds[each] for each in wanted)), f"{path}: {value!r}"
    if "pattern" in schema:
        assert re.search(schema["pattern"], str(value)), f"{path}: {value!r}"
    if schema.get("format") == "date-time":
        datetime.fromisoformat(str(value))
    if "minimum" in schema:
        assert isinstance(value, int), path
        assert value >= schema["minimum"], path
    if isinstance(value, list) and "items" in schema:
        for each in value:
            check(each, schema["items"], f"{path}[]")
    if isinstance(value, dict):
        properties = schema.get("properties", {})
        missing = set(schema.get("required", ())) - value.keys()
        assert not missing, f"{path} lacks {missing}"
        for name, each in value.items():
            more = schema.get("additionalProperties", True)
            assert name in properties or more, f"{path} has {name}"
            if name in properties:
                check(each, properties[name], f"{path}.{name}")
            elif isinstance(more, dict):
                check(each, more, f"{path}.{name}")
