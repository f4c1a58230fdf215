"""ListTransactions: by state, producer id, duration and pattern."""

from __future__ import annotations

from typing import Any

from tests.interop.differential.scenario import scenario
from tests.interop.differential.session import Answer, Session
from tests.interop.differential.transactions import Transactor

API = "ListTransactions"


def ask(s: Session, version: int, **filters: Any) -> None:
    """Ask, and look at the session's own transactions only."""

    def own(answer: Answer) -> Answer:
        kept = [each for each in answer["transaction_states"] if s.is_own(each["transactional_id"])]
        return answer | {"transaction_states": kept}

    fields = {"state_filters": [], "producer_id_filters": [], "duration_filter": -1}
    s.call_for(own, API, version, **(fields | filters))


@scenario(versions=API)
def by_state(s: Session, version: int) -> None:
    topic = s.topic()
    Transactor(s, "x").begin()
    y = Transactor(s, "y").begin()
    y.write(topic, "a")
    ask(s, version)
    ask(s, version, state_filters=["Ongoing"])
    ask(s, version, state_filters=["Empty", "Ongoing"])
    ask(s, version, state_filters=["ongoing"])
    ask(s, version, state_filters=["Nonsense", "Empty"])


@scenario(versions=API)
def by_producer_id(s: Session, version: int) -> None:
    x = Transactor(s, "x").begin()
    Transactor(s, "y").begin()
    ask(s, version, producer_id_filters=[x.producer_id])
    ask(s, version, producer_id_filters=[77_400_009])


@scenario(versions=[1, 2], cases={"zero": 0, "long": 3_600_000, "negative": -5})
def by_duration(s: Session, duration_ms: int, version: int) -> None:
    topic = s.topic()
    x = Transactor(s).begin()
    x.write(topic, "a")
    ask(s, version, duration_filter=duration_ms)


@scenario(
    versions=[2],
    cases={"all": ".*", "part": "x.*", "none": "nothing", "wrong": "(", "empty": ""},
)
def by_pattern(s: Session, pattern: str, version: int) -> None:
    Transactor(s, "x").begin()
    Transactor(s, "y").begin()
    ask(s, version, transactional_id_pattern=pattern)
