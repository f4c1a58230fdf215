"""PushTelemetry to a broker that collects no metrics of clients (KIP-714)."""

from __future__ import annotations

from typing import Any

from tests.interop.differential.scenario import scenario
from tests.interop.differential.session import Session

CLIENT = "1864d108664a42428476f1033c9b79"
MORE: dict[str, dict[str, Any]] = {
    "nothing": {},
    "metrics": {"metrics": b"123"},
    "compressed": {"metrics": b"123", "compression_type": 4},
    "unknown_compression": {"metrics": b"123", "compression_type": 77},
    "last": {"terminating": True},
    "too_much": {"metrics": bytes(1_048_577)},
}


@scenario(cases={"none": "0" * 32, "one": "0" * 31 + "1"})
def no_id(s: Session, client_instance_id: str) -> None:
    s.call("PushTelemetry", 0, client_instance_id=client_instance_id)


@scenario(cases=MORE)
def subscribed(s: Session, more: dict[str, Any]) -> None:
    client = CLIENT + f"{list(MORE.values()).index(more):02x}"
    answer = s.quiet("GetTelemetrySubscriptions", 0, client_instance_id=client)
    s.call(
        "PushTelemetry",
        0,
        client_instance_id=client,
        subscription_id=answer["subscription_id"],
        **more,
    )


@scenario(cases=MORE)
def not_subscribed(s: Session, more: dict[str, Any]) -> None:
    client = CLIENT + f"{0x80 + list(MORE.values()).index(more):02x}"
    s.call("PushTelemetry", 0, client_instance_id=client, subscription_id=12345, **more)
