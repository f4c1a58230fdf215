"""Opens the tracing of a client, and loads OpenTelemetry, where its settings ask for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.client.core.settings import ObservedSettings
    from millstream.client.core.tracing import Tracing


def open_tracing(settings: ObservedSettings, group: str | None = None) -> Tracing | None:
    """Return what makes the spans, None for none; ConfigError without opentelemetry-api."""
    if settings.tracing is None:
        return None
    from millstream.client.tracing import OpenTelemetryTracing

    return OpenTelemetryTracing(settings, group)
