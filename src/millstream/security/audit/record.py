"""The records of the audit log: CloudEvents in JSON; ``SCHEMA`` describes them.

The names of fields are those of Confluent's audit log, so that what reads one reads the other:
``authenticationInfo``, ``authorizationInfo``, ``request``, ``requestMetadata``, ``result``. Written
out by ``python -m millstream.security.audit.record > docs/audit-log.schema.json``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from millstream.model.acl import Acl, AclResource
from millstream.protocol.api import APIS
from millstream.security.audit.event import (
    ANY_RESOURCE,
    NO_AUTHORIZER,
    NOT_ASKED,
    Authentication,
    Authorization,
    JsonValue,
    Origin,
)
from millstream.security.audit.kinds import CLASSES, EventKind, Outcome
from millstream.security.audit.redaction import shortened
from millstream.security.authorizer import DEFAULT_ALLOW, DEFAULT_DENY, SUPER_USER, Decision

AUTHENTICATION: Final = "millstream.audit/authentication"
AUTHORIZATION: Final = "millstream.audit/authorization"
LEFT_OUT: Final = "millstream.audit/left-out"

_DECIDED_BY: Final = {
    SUPER_USER: "superUser",
    DEFAULT_ALLOW: "defaultAllow",
    DEFAULT_DENY: "defaultDeny",
    NO_AUTHORIZER: "noAuthorizer",
    NOT_ASKED: "notAsked",
    ANY_RESOURCE: "anyResource",
}
_STATUS: Final = {
    Outcome.SUCCEEDED: "SUCCESS",
    Outcome.FAILED: "UNAUTHENTICATED",
    Outcome.EXPIRED: "SESSION_EXPIRED",
}


def authentication_data(event: Authentication) -> dict[str, JsonValue]:
    """Return the ``data`` of the record of an authentication."""
    result: dict[str, JsonValue] = {"status": _STATUS[event.outcome]}
    if event.reason:
        result["message"] = shortened(event.reason)
    return {
        "kind": EventKind.AUTHENTICATION.value,
        "outcome": event.outcome.value,
        "methodName": "kafka.Authentication",
        "authenticationInfo": _who(event.origin),
        "requestMetadata": _where(event.origin),
        "reauthentication": event.is_again,
        "result": result,
    }


def authorization_data(event: Authorization) -> dict[str, JsonValue]:
    """Return the ``data`` of the record of an authorization."""
    head = event.request
    request: dict[str, JsonValue] = {
        "correlationId": head.correlation_id,
        "clientId": None if head.client_id is None else shortened(head.client_id),
        "apiVersion": head.api_version,
    }
    if event.data is not None:
        request["data"] = event.data
    data: dict[str, JsonValue] = {
        "kind": event.kind.value,
        "outcome": event.outcome.value,
        "methodName": f"kafka.{APIS[head.api_key].name}",
        "authenticationInfo": _who(event.origin),
        "authorizationInfo": _decided(event),
        "request": request,
        "requestMetadata": _where(event.origin),
    }
    if event.result is not None:
        data["result"] = event.result
    return data


def left_out_data(
    reason: str, counts: Mapping[str, int], *, from_ms: int, to_ms: int
) -> dict[str, JsonValue]:
    """Return the ``data`` of the record of what is not in the log; ``counts`` by kind and outcome,
    as ``produce.denied``.
    """
    return {
        "reason": reason,
        "from": _time(from_ms),
        "to": _time(to_ms),
        "total": sum(counts.values()),
        "counts": dict(sorted(counts.items())),
    }


def repeated(
    data: dict[str, JsonValue], *, count: int, from_ms: int, to_ms: int
) -> dict[str, JsonValue]:
    """Return ``data`` for ``count`` events that were the same."""
    return {**data, "repeated": {"count": count, "from": _time(from_ms), "to": _time(to_ms)}}


def encoded(
    type_: str,
    data: Mapping[str, JsonValue],
    *,
    event_id: str,
    source: str,
    subject: str | None,
    time_ms: int,
) -> bytes:
    """Return a record as one line of JSON, without the line's end."""
    envelope: dict[str, JsonValue] = {
        "specversion": "1.0",
        "id": event_id,
        "source": source,
        "type": type_,
        "time": _time(time_ms),
        "datacontenttype": "application/json",
    }
    if subject is not None:
        envelope["subject"] = subject
    envelope["data"] = data
    # ASCII alone: no text of a client, whatever is in it, can end a line or fail to be encoded.
    return json.dumps(envelope, separators=(",", ":")).encode("ascii")


def subject_of(event: Authorization) -> str:
    """Return what an authorization was about, as ``Topic/hits``."""
    return f"{_title(event.resource)}/{shortened(event.name)}"


def _who(origin: Origin) -> dict[str, JsonValue]:
    info: dict[str, JsonValue] = {"principal": shortened(origin.principal)}
    metadata: dict[str, JsonValue] = {}
    if origin.mechanism:
        metadata["mechanism"] = f"{origin.protocol}/{shortened(origin.mechanism)}"
    if origin.identifier:
        metadata["identifier"] = shortened(origin.identifier)
    if origin.token_authenticated:
        metadata["tokenAuthenticated"] = True
    if metadata:
        info["metadata"] = metadata
    if origin.forwarded_by is not None:
        info["forwardedBy"] = shortened(origin.forwarded_by)
    return info


def _where(origin: Origin) -> dict[str, JsonValue]:
    return {
        "clientAddress": origin.address,
        "clientPort": origin.port,
        "listener": origin.listener,
        "securityProtocol": origin.protocol,
    }


def _decided(event: Authorization) -> dict[str, JsonValue]:
    decision: Decision = event.decision
    info: dict[str, JsonValue] = {"granted": decision.is_allowed}
    if event.operation is not None:
        info["operation"] = _title(event.operation)
    info["resourceType"] = _title(event.resource)
    info["resourceName"] = shortened(event.name)
    info["patternType"] = "LITERAL"
    reason = decision.reason
    if isinstance(reason, Acl):
        info["decidedBy"] = "acl"
        info["aclAuthorization"] = {
            "permissionType": reason.permission.name,
            "operation": _title(reason.operation),
            "principal": shortened(reason.principal),
            "host": shortened(reason.host),
            "resourceName": shortened(reason.name),
            "patternType": reason.pattern.name,
        }
    else:
        info["decidedBy"] = _DECIDED_BY[reason]
        if reason == SUPER_USER:
            info["superUserAuthorization"] = True
    return info


def _title(value: AclResource | object) -> str:
    """Return a constant as Kafka writes it: ``DescribeConfigs``."""
    name = getattr(value, "name", "")
    return str(name).title().replace("_", "")


def _time(wall_ms: int) -> str:
    """Return a time in UTC, as RFC 3339 writes it."""
    when = datetime.fromtimestamp(wall_ms / 1_000, UTC)
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _text(**more: JsonValue) -> dict[str, JsonValue]:
    return {"type": "string", **more}


def _object(
    properties: Mapping[str, JsonValue], optional: tuple[str, ...] = (), **more: JsonValue
) -> dict[str, JsonValue]:
    return {
        "type": "object",
        "properties": properties,
        "required": [name for name in properties if name not in optional],
        "additionalProperties": False,
        **more,
    }


_TIME_SCHEMA: Final = _text(format="date-time")
_COUNT_SCHEMA: Final[dict[str, JsonValue]] = {"type": "integer", "minimum": 1}
_WHO_SCHEMA: Final = _object(
    {
        "principal": _text(description="Who asked, as User:ann."),
        "metadata": _object(
            {
                "mechanism": _text(description="Protocol and mechanism, as SASL_SSL/PLAIN."),
                "identifier": _text(
                    description="The name with which the client authenticated, or tried to; of a "
                    "delegation token its id."
                ),
                "tokenAuthenticated": {"const": True},
            },
            ("mechanism", "identifier", "tokenAuthenticated"),
        ),
        "forwardedBy": _text(description="The principal of the broker that speaks for the client."),
    },
    ("metadata", "forwardedBy"),
)
_WHERE_SCHEMA: Final = _object(
    {
        "clientAddress": _text(),
        "clientPort": {
            "type": "integer",
            "description": "0 for a client of another broker.",
        },
        "listener": _text(),
        "securityProtocol": _text(),
    }
)
_RESULT_SCHEMA: Final = _object(
    {
        "status": _text(
            enum=["SUCCESS", "FAILURE", "PARTIAL", "UNAUTHENTICATED", "SESSION_EXPIRED"]
        ),
        "message": _text(description="Why an authentication failed."),
        "error": _text(description="The name of the error that was answered."),
        "errors": {
            "type": "array",
            "items": _object({"item": _text(), "error": _text()}),
            "description": "The parts of a request that failed: by name, or by place as #0.",
        },
        "errorsOmitted": _COUNT_SCHEMA,
    },
    ("message", "error", "errors", "errorsOmitted"),
)
_AUTHORIZATION_SCHEMA: Final = _object(
    {
        "granted": {"type": "boolean"},
        "operation": _text(description="As Describe, Alter, ClusterAction."),
        "resourceType": _text(
            enum=["Topic", "Group", "Cluster", "TransactionalId", "DelegationToken", "User"]
        ),
        "resourceName": _text(),
        "patternType": {"const": "LITERAL"},
        "decidedBy": _text(enum=["acl", *_DECIDED_BY.values()]),
        "aclAuthorization": _object(
            {
                "permissionType": _text(enum=["ALLOW", "DENY"]),
                "operation": _text(),
                "principal": _text(),
                "host": _text(),
                "resourceName": _text(),
                "patternType": _text(enum=["LITERAL", "PREFIXED"]),
            },
            description="The rule that decided.",
        ),
        "superUserAuthorization": {"const": True},
    },
    ("operation", "aclAuthorization", "superUserAuthorization"),
)
_REPEATED_SCHEMA: Final = _object(
    {"count": _COUNT_SCHEMA, "from": _TIME_SCHEMA, "to": _TIME_SCHEMA},
    description="This record stands for so many events that were the same.",
)


def _data_schema() -> list[JsonValue]:
    kinds = list(dict.fromkeys(kind.value for kind, _ in CLASSES))
    return [
        _object(
            {
                "kind": {"const": "authentication"},
                "outcome": _text(enum=["failed", "succeeded", "expired"]),
                "methodName": {"const": "kafka.Authentication"},
                "authenticationInfo": _WHO_SCHEMA,
                "requestMetadata": _WHERE_SCHEMA,
                "reauthentication": {"type": "boolean"},
                "result": _RESULT_SCHEMA,
            },
            title=AUTHENTICATION,
        ),
        _object(
            {
                "kind": _text(enum=[kind for kind in kinds if kind != "authentication"]),
                "outcome": _text(enum=["denied", "allowed"]),
                "methodName": _text(pattern="^kafka\\.", description="As kafka.CreateTopics."),
                "authenticationInfo": _WHO_SCHEMA,
                "authorizationInfo": _AUTHORIZATION_SCHEMA,
                "request": _object(
                    {
                        "correlationId": {"type": "integer"},
                        "clientId": {"type": ["string", "null"]},
                        "apiVersion": {"type": "integer"},
                        "data": {
                            "type": "object",
                            "description": "What a management request asked for, without secrets.",
                        },
                    },
                    ("data",),
                ),
                "requestMetadata": _WHERE_SCHEMA,
                "result": _RESULT_SCHEMA,
                "repeated": _REPEATED_SCHEMA,
            },
            ("result", "repeated"),
            title=AUTHORIZATION,
        ),
        _object(
            {
                "reason": _text(enum=["rate-limit", "queue-full", "write-failed"]),
                "from": _TIME_SCHEMA,
                "to": _TIME_SCHEMA,
                "total": _COUNT_SCHEMA,
                "counts": {
                    "type": "object",
                    "additionalProperties": _COUNT_SCHEMA,
                    "description": "By kind and outcome, as produce.denied.",
                },
            },
            title=LEFT_OUT,
        ),
    ]


SCHEMA: Final[Mapping[str, JsonValue]] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "A record of Millstream's audit log: a CloudEvent",
    **_object(
        {
            "specversion": {"const": "1.0"},
            "id": _text(
                description="Unique: broker id, start of the broker's log in hexadecimal "
                "milliseconds, number. A record that was written twice has it twice."
            ),
            "source": _text(description="/clusters/CLUSTER/brokers/ID"),
            "type": _text(enum=[AUTHENTICATION, AUTHORIZATION, LEFT_OUT]),
            "time": _TIME_SCHEMA,
            "datacontenttype": {"const": "application/json"},
            "subject": _text(description="As Topic/hits."),
            "data": {"oneOf": _data_schema()},
        },
        ("subject",),
    ),
}


if __name__ == "__main__":
    print(json.dumps(SCHEMA, indent=2))
