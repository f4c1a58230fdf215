"""DescribeTransactions: the state of transactional ids."""

from __future__ import annotations

from tests.interop.differential.scenario import scenario
from tests.interop.differential.session import Answer, Session
from tests.interop.differential.transactions import BOTH, ENDS, Transactor


def ask(s: Session, *names: str) -> None:
    """Ask; Kafka lists partitions in the order of a hash table."""

    def ordered(answer: Answer) -> Answer:
        for state in answer["transaction_states"]:
            for topic in state["topics"]:
                topic["partitions"].sort()
        return answer

    s.call_for(ordered, "DescribeTransactions", 0, transactional_ids=list(names))


@scenario(cases=BOTH)
def through_its_states(s: Session, version: int) -> None:
    topic = s.topic(partitions=3)
    x = Transactor(s, version=version).begin()
    ask(s, x.name)
    x.write(topic, "a", index=2)
    x.write(topic, "a", index=0)
    ask(s, x.name)


@scenario(cases=ENDS)
def ended(s: Session, commit: bool) -> None:
    topic = s.topic()
    for version in (1, 2):
        x = Transactor(s, f"x{version}", version=version).begin()
        x.write(topic, "a")
        x.end(commit=commit)
        ask(s, x.name)


@scenario
def unknown_empty_and_twice(s: Session) -> None:
    x = Transactor(s).begin()
    ask(s, s.name("nobody"))
    ask(s, "")
    ask(s)
    ask(s, x.name, x.name)
