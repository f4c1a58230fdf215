"""What a test does to the answers of requests to come: the rules, and who decides by them.

A rule decides in the test's process, so one count holds for all brokers of a cluster, and a rule
may be a function of the test.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from millstream.model.errors import ErrorCode
from millstream.protocol.message import Response
from millstream.testing.errors import TestBrokerError
from millstream.testing.frames import Frame
from millstream.testing.requests import RecordedRequest, api_key, matches

Verdict = Frame
SERVE: Verdict = {"action": "serve"}


@dataclass(eq=False)
class Rule:
    """What happens to matching requests. A context manager that removes it."""

    keys: frozenset[int]
    client_id: str | None
    broker: int | None
    where: Callable[[Any], object] | None
    left: int | None
    decide: Callable[[RecordedRequest], Verdict]
    remove_from: Callable[[Rule], None]
    used: list[RecordedRequest] = field(default_factory=list)
    """The requests to which it was applied."""
    failure: Exception | None = None
    """What a function of the test has raised; the request was served."""
    _changed: threading.Condition = field(default_factory=threading.Condition)

    @property
    def times(self) -> int:
        """To how many requests it was applied."""
        return len(self.used)

    def wait(self, times: int = 1, timeout: float = 30.0) -> list[RecordedRequest]:
        """Return the requests once it was applied so often; AssertionError after ``timeout``
        seconds.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: len(self.used) >= times, timeout):
                raise AssertionError(
                    f"the rule was applied {len(self.used)} times in {timeout:g} s, not {times}"
                )
            return list(self.used)

    def remove(self) -> None:
        """Apply it no more. What a function of the test has raised is raised here."""
        self.remove_from(self)
        if self.failure is not None:
            raise self.failure

    def applies(self, request: RecordedRequest) -> bool:
        """Tell whether it decides about a request."""
        if self.left == 0 or request.key not in self.keys:
            return False
        if self.broker not in (None, request.broker):
            return False
        return matches(self.client_id, request.client_id) and (
            self.where is None or bool(self.where(request.body))
        )

    def apply(self, request: RecordedRequest) -> Verdict:
        """Decide about a request to which it applies."""
        verdict = self.decide(request)
        with self._changed:
            if self.left is not None:
                self.left -= 1
            self.used.append(request)
            self._changed.notify_all()
        return verdict

    def __enter__(self) -> Rule:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


class Requests:
    """The next requests of an API, before it is said what happens to them: call one method."""

    def __init__(
        self,
        rules: Rules,
        apis: tuple[str, ...],
        count: int | None,
        client_id: str | None,
        broker: int | None,
        where: Callable[[Any], object] | None,
    ) -> None:
        self._rules = rules
        self._keys = frozenset(api_key(api) for api in apis)
        self._count = count
        self._client_id = client_id
        self._broker = broker
        self._where = where

    def fail(self, error: str | ErrorCode) -> Rule:
        """Answer with an error by Kafka's name (``"NOT_LEADER_OR_FOLLOWER"``), in each place where
        the API has one. Nothing is done.
        """
        code = error if isinstance(error, ErrorCode) else ErrorCode.__members__.get(error)
        if code is None:
            raise TestBrokerError(f"there is no error {error!r} in Kafka's protocol")
        return self._add({"action": "fail", "code": code.code})

    def answer(self, response: Callable[[RecordedRequest], Response | None] | Response) -> Rule:
        """Answer with a response, or with what a function of the request returns; where that
        returns None the broker serves the request.
        """

        def decide(request: RecordedRequest) -> Verdict:
            made = response if isinstance(response, Response) else response(request)
            if made is None:
                return SERVE
            return {"action": "answer", "body": made.encode_body(request.version)}

        return self._add(decide)

    def delay(self, seconds: float) -> Rule:
        """Serve, and keep the answer back for so many seconds of real time."""
        return self._add({"action": "delay", "delay_s": float(seconds)})

    def drop(self) -> Rule:
        """Neither serve nor answer; the connection stays open, and what follows on it waits as long
        as Kafka's order of answers demands.
        """
        return self._add({"action": "silence"})

    def disconnect(self) -> Rule:
        """Close the connection in place of serving."""
        return self._add({"action": "disconnect"})

    def lose_answer(self) -> Rule:
        """Serve, and close the connection in place of answering: the client cannot know."""
        return self._add({"action": "lose"})

    def watch(self) -> Rule:
        """Serve as ever; ``wait`` returns when a request has come."""
        return self._add(SERVE)

    def _add(self, verdict: Verdict | Callable[[RecordedRequest], Verdict]) -> Rule:
        decide = verdict if callable(verdict) else lambda _: verdict
        rule = Rule(
            self._keys,
            self._client_id,
            self._broker,
            self._where,
            self._count,
            decide,
            self._rules.remove,
        )
        self._rules.add(rule)
        return rule


class Rules:
    """All rules in force, the oldest first: the first that applies decides.

    ``on_changed`` is called with the APIs to be watched when they change.
    """

    def __init__(self, on_changed: Callable[[], None]) -> None:
        self._on_changed = on_changed
        self._rules: list[Rule] = []
        self._lock = threading.Lock()
        self.failures: list[Exception] = []
        """What functions of the test have raised."""

    @property
    def keys(self) -> list[int]:
        """The APIs whose requests some rule may decide."""
        with self._lock:
            return sorted({key for rule in self._rules if rule.left != 0 for key in rule.keys})

    def add(self, rule: Rule) -> None:
        """Add a rule; requests that come when this has returned are decided by it."""
        with self._lock:
            self._rules.append(rule)
        self._on_changed()

    def remove(self, rule: Rule) -> None:
        """Remove a rule, if it is there."""
        with self._lock:
            if rule not in self._rules:
                return
            self._rules.remove(rule)
        self._on_changed()

    def clear(self) -> None:
        """Remove all rules."""
        with self._lock:
            had_rules, self._rules = bool(self._rules), []
        if had_rules:
            self._on_changed()

    def decide(self, request: RecordedRequest) -> Verdict:
        """Return what happens to a request."""
        with self._lock:
            rules = list(self._rules)
        for rule in rules:
            try:
                if rule.applies(request):
                    return rule.apply(request)
            except Exception as error:
                rule.failure = error
                self.failures.append(error)
        return SERVE
