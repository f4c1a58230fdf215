"""Puts the audit log in place while any kind of event is recorded, and takes it away afterwards.

A broker without an audit log loads no code of it, and its handlers are called as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from millstream.config.broker import BrokerConfig
from millstream.config.sections.audit import AuditSettings
from millstream.handlers.request import Handle
from millstream.runtime.services import Services

if TYPE_CHECKING:
    from millstream.handlers.routes import Route
    from millstream.runtime.audit.audit_log import AuditLog


class AuditSwitch:
    """Follows the settings. ``on_switched`` is called when the audit log begins to record something
    else: handlers are chosen anew then.
    """

    def __init__(self, services: Services, on_switched: Callable[[], None]) -> None:
        self._services = services
        self._on_switched = on_switched
        self.log: AuditLog | None = None
        """The audit log, once there was one: what waits in it is written even when it is off."""
        services.config.on_change(self._changed)
        if _is_on(services.config.current):
            self._switch(services.config.current)

    def around(self, route: Route, handle: Handle) -> Handle:
        """Return the handler of an API, with the audit log around it where it records any of it."""
        audit = self._services.audit
        if audit is None:
            return handle
        from millstream.handlers.audited import audited

        return audited(audit, self._services, route, handle)

    def _changed(self, before: BrokerConfig, after: BrokerConfig) -> None:
        if any(before.value(name) != after.value(name) for name in AuditSettings.keys):
            self._switch(after)

    def _switch(self, config: BrokerConfig) -> None:
        services = self._services
        if self.log is None:
            if not _is_on(config):
                return
            from millstream.runtime.audit.audit_log import AuditLog

            self.log = AuditLog(
                config,
                clock=services.clock,
                offload=services.offload,
                metadata=services.metadata,
                ensure_topic=services.ensure_topic,
                send_request=services.send_request,
            )
        else:
            from millstream.runtime.audit.audit_log import policy_of

            self.log.set_policy(policy_of(config))
        services.audit = self.log if _is_on(config) else None
        if services.authorizer is not None:
            services.authorizer.forget_decisions()  # those that are kept are not recorded
        self._on_switched()


def _is_on(config: BrokerConfig) -> bool:
    """Tell whether any kind of event is recorded."""
    return any(config.value(name) in ("topic", "file") for name in AuditSettings.keys)
