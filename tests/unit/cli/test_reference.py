"""The page that lists all commands is what the code says."""

from __future__ import annotations

from pathlib import Path

from millstream.cli.reference import reference

PAGE = Path(__file__).parents[3] / "docs" / "commands.md"


def test_the_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == reference(), (
        "run: python -m millstream.cli.reference > docs/commands.md"
    )
