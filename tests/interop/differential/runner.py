"""Runs scenarios against a broker and compares their answers with Kafka's recorded ones."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.interop.differential import recorded
from tests.interop.differential.normalise import differences
from tests.interop.differential.scenario import Scenario
from tests.interop.differential.session import Session

Steps = list[tuple[str, object]]
_SHARE_PARTITION: Final = "differential-warm-up:AAAAAAAAAAAAAAAAAAAAAQ:0"


@dataclass(frozen=True)
class Outcome:
    """What one scenario gave: its answers, and the error that ended it early, if any."""

    scenario: Scenario
    steps: Steps
    failure: str | None


def perform(scenario: Scenario, session: Session) -> Outcome:
    """Run one scenario in a session of its own, and close that."""
    failure = None
    try:
        scenario.run(session)
    except Exception:
        failure = traceback.format_exc(limit=-3)
    finally:
        session.close()
    return Outcome(scenario, session.steps, failure)


def prepare(session: Session, key_types: Iterable[int] = (0, 1)) -> None:
    """Wait until coordinators (0 of groups, 1 of transactions), those of share partitions and
    producer ids are ready; closes the session.
    """

    def ready(answer: dict[str, object]) -> bool:
        return answer["error_code"] == 0

    group = {"group_id": "differential-warm-up"}
    for key_type in key_types:
        session.until(ready, "FindCoordinator", 1, key="differential-warm-up", key_type=key_type)
    session.until(
        lambda answer: answer["coordinators"][0]["error_code"] == 0,
        "FindCoordinator",
        6,
        coordinator_keys=[_SHARE_PARTITION],
        key_type=2,
    )
    session.until(ready, "OffsetFetch", 5, **group, topics=None)
    session.until(ready, "InitProducerId", 1, transactional_id=None, transaction_timeout_ms=1)
    session.close()


def compare(outcome: Outcome, expected: Steps) -> list[str]:
    """Return what differs between Kafka's answers and those of ``outcome``."""
    lines = []
    for index in range(max(len(expected), len(outcome.steps))):
        if index >= len(outcome.steps):
            lines.append(f"step {index + 1} {expected[index][0]}: not reached")
            break
        if index >= len(expected):
            lines.append(f"step {index + 1} {outcome.steps[index][0]}: Kafka has no such step")
            break
        (step, wanted), (actual_step, got) = expected[index], outcome.steps[index]
        if step != actual_step:
            lines.append(f"step {index + 1}: Kafka {step}, here {actual_step}")
            break
        lines += [f"step {index + 1} {step} {line}" for line in differences(wanted, got)]
    if outcome.failure is not None:
        lines.append("the scenario broke off: " + outcome.failure)
    return lines


def record(
    scenarios: Iterable[Scenario],
    new_session: Callable[[], Session],
    *,
    is_complete: bool,
    directory: Path = recorded.ANSWERS,
    tell: Callable[[str], None] = print,
) -> int:
    """Run scenarios against Apache Kafka and keep its answers; return how many broke off.

    ``is_complete`` says that they are all scenarios of their APIs: answers of others are dropped.
    """
    prepare(new_session())
    answers: dict[str, dict[str, Steps]] = {}
    failures = 0
    for scenario in scenarios:
        outcome = perform(scenario, new_session())
        if outcome.failure is not None:
            failures += 1
            tell(f"{scenario} broke off: {outcome.failure}\n  after {outcome.steps[-1:]}")
            continue
        if scenario.api not in answers:
            answers[scenario.api] = (
                {} if is_complete else dict(recorded.load(scenario.api, directory))
            )
        answers[scenario.api][scenario.name] = outcome.steps
    for api, kept in answers.items():
        recorded.save(api, kept, directory)
    return failures
