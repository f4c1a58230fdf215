"""What goes wrong with brokers under test."""

from __future__ import annotations

from millstream.model.errors import MillstreamError


class TestBrokerError(MillstreamError):
    """A broker under test did not do what was asked of it; the text says why."""

    __test__ = False
