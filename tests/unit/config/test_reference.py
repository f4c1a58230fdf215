"""The page that lists all settings is what the code says, and importing the code is cheap."""

from __future__ import annotations

from pathlib import Path

from millstream.config.broker import SECTIONS
from millstream.config.reference import reference
from millstream.config.topic import TopicConfig

PAGE = Path(__file__).parents[3] / "docs" / "configuration.md"


def test_the_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == reference(), (
        "run: python -m millstream.config.reference > docs/configuration.md"
    )


def test_every_setting_is_explained() -> None:
    for section in (TopicConfig, *SECTIONS):
        assert section.__doc__
        for key in section.keys.values():
            assert key.doc.endswith("."), key.name
