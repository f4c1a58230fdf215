"""GetTelemetrySubscriptions of a broker that collects no metrics of clients (KIP-714)."""

from __future__ import annotations

from tests.interop.differential.scenario import scenario
from tests.interop.differential.session import Answer, Session


def without_ids(answer: Answer) -> Answer:
    """The answer without what depends on an id that the broker has chosen."""
    assert answer["client_instance_id"] != "0" * 32
    return answer | {"client_instance_id": "", "subscription_id": 0}


@scenario
def a_new_client(s: Session) -> None:
    s.call_for(without_ids, "GetTelemetrySubscriptions", 0, client_instance_id="0" * 32)


@scenario(
    cases={
        "one": "2864d108664a42428476f1033c9b7953",
        "negative": "f" * 31 + "e",
        "reserved": "0" * 31 + "1",
    }
)
def a_client_with_an_id(s: Session, client_instance_id: str) -> None:
    s.call("GetTelemetrySubscriptions", 0, client_instance_id=client_instance_id)
