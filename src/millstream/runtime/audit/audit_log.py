"""The audit log of this broker: what handlers and listeners tell it, and where that goes.

There is none while everything is off (``server.audit_switch``). Handlers reach it through
``handlers.audited``, authentications through ``Services.audit``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from millstream.config.broker import BrokerConfig
from millstream.config.sections.audit import OFF
from millstream.model.clock import Clock, TimerHandle
from millstream.model.principal import ANONYMOUS
from millstream.runtime.audit.file_sink import FileSink
from millstream.runtime.audit.topic_sink import EnsureTopic, SendRequest, TopicSink
from millstream.runtime.pauses import until
from millstream.security.audit.event import Authentication, Authorization, Moment, Origin
from millstream.security.audit.kinds import EventKind, Outcome
from millstream.security.audit.machine import (
    AuditMachine,
    Destination,
    Entry,
    EventClass,
    Policy,
    Reason,
)
from millstream.security.authorizer import Authorizer, parse_super_users

if TYPE_CHECKING:
    from millstream.model.deferred import Deferred
    from millstream.runtime.metadata.metadata_cache import MetadataCache
    from millstream.runtime.offload import Offload

log = logging.getLogger(__name__)

TICK_MS: Final = 1_000
_LOOK_MS: Final = 10


def policy_of(config: BrokerConfig) -> Policy:
    """Return what the settings say is recorded."""
    words: dict[EventClass, str] = {
        (EventKind.AUTHENTICATION, Outcome.FAILED): config.audit_log_authentication_failed,
        (EventKind.AUTHENTICATION, Outcome.SUCCEEDED): config.audit_log_authentication_succeeded,
        (EventKind.AUTHENTICATION, Outcome.EXPIRED): config.audit_log_authentication_expired,
        (EventKind.MANAGEMENT, Outcome.DENIED): config.audit_log_management_denied,
        (EventKind.MANAGEMENT, Outcome.ALLOWED): config.audit_log_management_allowed,
        (EventKind.DESCRIBE, Outcome.DENIED): config.audit_log_describe_denied,
        (EventKind.DESCRIBE, Outcome.ALLOWED): config.audit_log_describe_allowed,
        (EventKind.PRODUCE, Outcome.DENIED): config.audit_log_produce_denied,
        (EventKind.PRODUCE, Outcome.ALLOWED): config.audit_log_produce_allowed,
        (EventKind.CONSUME, Outcome.DENIED): config.audit_log_consume_denied,
        (EventKind.CONSUME, Outcome.ALLOWED): config.audit_log_consume_allowed,
        (EventKind.INTERBROKER, Outcome.DENIED): config.audit_log_interbroker_denied,
        (EventKind.INTERBROKER, Outcome.ALLOWED): config.audit_log_interbroker_allowed,
    }
    return Policy(
        routes={each: Destination(word) for each, word in words.items() if word != OFF},
        max_events_per_second=config.audit_log_max_events_per_second,
        burst_events=config.audit_log_burst_events,
        repeat_interval_ms=config.audit_log_repeat_interval_ms,
        # Written as super users are.
        excluded_principals=parse_super_users(config.audit_log_excluded_principals),
    )


class AuditLog:
    """Takes events. Made when the first kind of event is switched on."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        clock: Clock,
        offload: Offload,
        metadata: MetadataCache,
        ensure_topic: EnsureTopic,
        send_request: SendRequest,
    ) -> None:
        self._clock = clock
        self._offload = offload
        self._metadata = metadata
        self._ensure_topic = ensure_topic
        self._send_request = send_request
        self._config = config
        self._protocols = {each.name: each.protocol for each in config.listening()}
        self.stand_in = Authorizer(allow_everyone_if_no_acl_found=True)
        """Asked in place of an authorizer on a broker that has none: it allows everything."""
        self._files: FileSink | None = None
        self._topic: TopicSink | None = None
        self._timer: TimerHandle | None = None
        self._is_closed = False
        broker_id = config.broker
        self._machine = AuditMachine(
            policy_of(config),
            source=f"/clusters/{metadata.cluster_id}/brokers/{broker_id}",
            run=f"{broker_id}-{self._clock.now_ms():x}",
            now=self._now(),
            emit=self._emit,
        )

    # What is recorded

    def set_policy(self, policy: Policy) -> None:
        """Record something else from now on."""
        self._machine.set_policy(policy, self._now())
        self._expect_tick()

    def records(self, kind: EventKind, outcome: Outcome) -> bool:
        """Tell whether events of a kind and an outcome are recorded."""
        return self._machine.records(kind, outcome)

    # What has happened

    def origin(
        self,
        principal: str,
        address: str,
        port: int,
        listener: str,
        *,
        mechanism: str = "",
        identifier: str = "",
        token_authenticated: bool = False,
        forwarded_by: str | None = None,
    ) -> Origin:
        """Return who a client is and where it comes from."""
        return Origin(
            principal,
            address,
            port,
            listener,
            self._protocols.get(listener, ""),
            mechanism,
            identifier,
            token_authenticated,
            forwarded_by,
        )

    def authentication(
        self, origin: Origin, outcome: Outcome, reason: str = "", *, is_again: bool = False
    ) -> None:
        """Record an authentication that ended, or the end of its session."""
        self._machine.authentication(Authentication(origin, outcome, reason, is_again), self._now())
        self._expect_tick()

    def shook_hands(self, principal: str, address: str, port: int, listener: str) -> None:
        """Record that a client has shown a certificate that is accepted."""
        if principal != str(ANONYMOUS) and self.records(
            EventKind.AUTHENTICATION, Outcome.SUCCEEDED
        ):
            origin = self.origin(principal, address, port, listener, mechanism="SSL")
            self.authentication(origin, Outcome.SUCCEEDED)

    def did_not_authenticate(self, address: str, port: int, listener: str, reason: str) -> None:
        """Record that a peer did not come to the end of its authentication: its handshake of TLS
        failed, or it took too long.
        """
        if self.records(EventKind.AUTHENTICATION, Outcome.FAILED):
            mechanism = "SSL" if "SSL" in self._protocols.get(listener, "") else ""
            origin = self.origin(str(ANONYMOUS), address, port, listener, mechanism=mechanism)
            self.authentication(origin, Outcome.FAILED, reason)

    def authorization(self, event: Authorization) -> None:
        """Record a decision."""
        self._machine.authorization(event, self._now())
        self._expect_tick()

    def repeatable(
        self,
        kind: EventKind,
        principal: str,
        key: tuple[str | int | None, ...],
        new_event: Callable[[], Authorization],
    ) -> None:
        """Record, or count, something that a principal was allowed; ``new_event`` is called where
        none like it, by ``key``, was recorded a short while ago.
        """
        if self._machine.excludes(principal):
            return
        key = (principal, *key)
        now = self._now()
        if not self._machine.counts(kind, key, now):
            self._machine.repeatable(new_event(), key, now)
            self._expect_tick()

    # The file and the topic

    def reopen(self) -> None:
        """Open the file again, if there is one: it may have been moved away."""
        if self._files is not None:
            self._files.reopen()

    def settle(self, limit_ms: float) -> Deferred[bool]:
        """Write what is left, as far as that can be done in a while; True when all is written."""
        self._machine.end(self._now())
        for sink in (self._files, self._topic):
            if sink is not None:
                sink.hurry()
        return until(self._clock, self._is_empty, limit_ms=limit_ms, look_ms=_LOOK_MS)

    def close(self) -> None:
        """Write nothing more. What was not written is lost, and that is logged."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        lost: dict[str, int] = dict(self._machine.left_out)
        for sink in (self._files, self._topic):
            for entry in () if sink is None else sink.close():
                for word, count in entry.stands_for.items():
                    lost[word] = lost.get(word, 0) + count
        if lost:
            log.error("the audit log has lost at the end: %s", _words(lost))

    def _is_empty(self) -> bool:
        return all(sink is None or sink.is_empty for sink in (self._files, self._topic))

    def _emit(self, entry: Entry) -> bool:
        if self._is_closed:
            return False
        if entry.destination is Destination.FILE:
            return self._file_sink().add(entry)
        return self._topic_sink().add(entry)

    def _file_sink(self) -> FileSink:
        if self._files is None:
            path = self._config.audit_log_file_path
            assert path is not None, "settings without it are refused"
            self._files = FileSink(
                path,
                clock=self._clock,
                offload=self._offload,
                max_bytes=self._config.audit_log_queue_max_bytes,
                on_room=self._has_room,
            )
        return self._files

    def _topic_sink(self) -> TopicSink:
        if self._topic is None:
            self._topic = TopicSink(
                clock=self._clock,
                metadata=self._metadata,
                ensure_topic=self._ensure_topic,
                send_request=self._send_request,
                max_bytes=self._config.audit_log_queue_max_bytes,
                on_room=self._has_room,
                on_lost=partial(self._lost, Reason.WRITE_FAILED),
            )
        return self._topic

    def _lost(self, reason: Reason, entries: list[Entry]) -> None:
        now = self._now()
        for entry in entries:
            self._machine.lost(entry, reason, now)
        self._expect_tick()

    def _has_room(self) -> None:
        """Write what was left out, now that there is room for it."""
        if not self._is_closed:
            self._machine.tick(self._now())

    def _expect_tick(self) -> None:
        if self._timer is None and self._machine.is_busy and not self._is_closed:
            self._timer = self._clock.call_later(TICK_MS, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._machine.tick(self._now())
        self._expect_tick()

    def _now(self) -> Moment:
        return Moment(self._clock.now_ms(), self._clock.monotonic_ms())


def _words(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} of {word}" for word, count in sorted(counts.items()))
