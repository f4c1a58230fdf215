"""ListConfigResources: everything that can have settings, by type."""

from __future__ import annotations

from tests.interop.differential.scenario import scenario
from tests.interop.differential.session import Answer, Session


def own(s: Session, answer: Answer) -> Answer:
    """Leave out other scenarios' topics and groups, and the internal topics."""

    def mine(resource: dict[str, object]) -> bool:
        return resource.get("resource_type") in (4, 8) or s.is_own(resource["resource_name"])

    return answer | {
        "config_resources": [each for each in answer["config_resources"] if mine(each)]
    }


@scenario
def client_metrics(s: Session) -> None:
    """Version 0 lists the resources of client metrics only."""
    s.call("ListConfigResources", 0)


TYPES = {
    "all": [],
    "topic": [2],
    "broker": [4],
    "broker_logger": [8],
    "client_metrics": [16],
    "group": [32],
    "topic_and_broker": [2, 4],
    "twice": [2, 2],
    "unknown": [1],
    "zero": [0],
    "negative": [-1],
    "known_and_unknown": [2, 99],
    "max": [127],
}


@scenario(cases=TYPES)
def types(s: Session, wanted: list[int]) -> None:
    s.topic("a")
    s.topic("b")
    s.call_for(lambda answer: own(s, answer), "ListConfigResources", 1, resource_types=wanted)
