"""Every command line on a page names commands and options that exist, every link a page."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
import typer

from millstream.cli.app import build
from millstream.cli.client_options import add_client_options

ROOT: Final = Path(__file__).parents[3]
PAGES: Final = sorted({ROOT / "README.md", *(ROOT / "docs").glob("*.md")})
_COMMAND: Final = re.compile(
    r"(?:^|[\s`$|&(])millstream (?!listening )((?:[^`\n]|\\\n)*)", re.MULTILINE
)


@cache
def application() -> Any:
    found: Any = typer.main.get_command(build([]))
    add_client_options(found)
    return found


def command_lines(text: str) -> Iterator[str]:
    """Yield what stands after ``millstream`` in code."""
    blocks = re.findall(r"^```.*?^```", text, re.DOTALL | re.MULTILINE)
    blocks += re.findall(r"^(?:    .*\n)+", text, re.MULTILINE)
    blocks += re.findall(r"`millstream [^`]*`", text)
    for block in blocks:
        for found in _COMMAND.findall(block.replace("\\\n", " ")):
            yield re.split(r"\s[|&;#>]|\s+#|\s{3,}", found.strip())[0]


def problem(line: str) -> str | None:
    """Return what is wrong with a command line."""
    try:
        words = shlex.split(line.replace("…", ""))
    except ValueError:
        return None  # cut off in the middle of a text
    command = application()
    while words and hasattr(command, "commands"):
        name = words[0]
        if name.startswith("-") or not re.fullmatch(r"[a-z-]+", name.split("/")[0]):
            break
        for each in name.split("/"):
            if each not in command.commands:
                return f"no command {each!r}"
        command = command.commands[name.split("/")[0]]
        del words[0]
    known = {name for each in command.params for name in (*each.opts, *each.secondary_opts)}
    known |= {"-h", "--help", "--version", "--install-completion"}
    for word in words:
        option = word.partition("=")[0]
        if re.fullmatch(r"--[a-z][a-z-]+", option) and option not in known:
            return f"no option {option}"
    return None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_types_exists(page: Path) -> None:
    lines = list(command_lines(page.read_text(encoding="utf-8")))
    wrong = [(line, found) for line in lines if (found := problem(line)) is not None]
    assert not wrong


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_where_a_page_links_to_is_there(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)(?:#[^)]*)?\)", page.read_text())
    assert not [each for each in links if not (page.parent / each).exists()]


def test_every_page_has_its_place_in_the_site() -> None:
    named = set(re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE))
    assert {each.name for each in (ROOT / "docs").glob("*.md")} == named
