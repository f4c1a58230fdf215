"""The page that lists all settings is what the code says, and importing the code is cheap."""

from __future__ import annotations

import re
from pathlib import Path

import millstream
from millstream.config.broker import SECTIONS
from millstream.config.group import GROUP_KEYS
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


TO_COME = ("transaction",)


def test_every_setting_acts() -> None:
    """Something reads it, by its attribute or by its name; what nothing reads has to be listed as
    accepted without effect. Transactions are to come.
    """
    package = Path(millstream.__file__).parent
    code = "\n".join(
        file.read_text("utf-8")
        for file in package.rglob("*.py")
        if "sections" not in file.parts and file.name != "accepted.py"
    )
    words = set(re.findall(r"[.\"](\w+)", code))
    quoted = set(re.findall(r'"([\w.]+)"', code))
    unread = [
        key.name
        for section in (*SECTIONS, TopicConfig)
        for key in section.keys.values()
        if key.name.replace(".", "_") not in words
        and key.name not in quoted
        and key.name.removeprefix("group.") not in GROUP_KEYS
    ]
    assert [each for each in unread if not each.startswith(TO_COME)] == []
