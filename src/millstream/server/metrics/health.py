"""Whether a broker lives and whether it is ready, as Kubernetes asks.

Alive is who answers. Ready is a broker that has loaded its logs, is registered in its cluster,
knows a controller and has been told its part, and has not begun to stop.
"""

from __future__ import annotations

from enum import Enum

from millstream.runtime.services import Services


class Phase(Enum):
    """How far a broker is with its start and its stop; the value is what the probe is told."""

    LOADING = "the broker opens its logs, or recovers them"
    SERVING = "ready"
    STOPPING = "the broker stops"


class Health:
    """The health of one broker."""

    def __init__(self) -> None:
        self.phase = Phase.LOADING
        self.services: Services | None = None
        """The parts of the broker, once they are there."""

    def not_ready(self) -> str:
        """Return why the broker is not ready; empty when it is."""
        services = self.services
        if self.phase is not Phase.SERVING or services is None:
            return self.phase.value if services is not None else Phase.LOADING.value
        if services.log_manager.directories == []:
            return "no log directory is left"
        member = services.cluster
        if member is None:
            return ""
        if not member.is_registered:
            return "the broker is not registered in its cluster"
        if not member.is_told:
            return "no controller has told this broker its part"
        return ""
