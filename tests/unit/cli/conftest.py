"""Fixtures for tests of commands."""

from __future__ import annotations

import sys

import pytest


@pytest.fixture
def terminal(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Have commands print as on a terminal, without colours."""
    # Of the class: pytest puts another object there between the fixtures and the test.
    monkeypatch.setattr(type(sys.stdout), "isatty", lambda file: file is sys.stdout, raising=False)
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("LINES", "50")
