"""The blocks of a page, and the marks that say how each is typed.

A block is what stands between two fences. ``console``, ``bash``, ``sh`` and ``python`` are typed;
every other language is something to look at. In a ``console`` block a command begins with ``$ ``,
and what follows is what it prints: ``…`` stands for anything, alone on a line for any number of
lines.

Marks are HTML comments, which no reader of the page sees. Above a block:

``<!-- not typed: REASON -->``      nobody can type this in a test
``<!-- typed by FILE -->``          that test types it, because it needs more than a terminal
``<!-- figures vary -->``           numbers, and the width of columns, need not be those of the page
``<!-- prints TEXT -->``            what the block prints has this text in it; may be repeated
``<!-- exits with 1 -->``           so does each command of the block
``<!-- with Spark -->``             typed by a second test of the page alone, which has Spark

Anywhere: ``<!-- typed first`` and commands on the lines up to ``-->`` are typed at that place, for
what the reader is supposed to have. ``<!-- page: MARKER … -->`` gives markers of pytest to the test
of the page.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = sorted(
    {
        ROOT / "README.md",
        *(ROOT / "docs").glob("*.md"),
        *(ROOT / "docs" / "formats").glob("*.md"),
        *(ROOT / "examples").rglob("*.md"),
    }
)
TYPED: Final = frozenset({"console", "bash", "sh", "python"})
_PIECE: Final = re.compile(
    r"^<!-- (?P<mark>[^\n]*?) ?-->\n+(?=<!-- |```)"
    r"|^<!-- typed first\n(?P<hidden>.*?)^-->$"
    r"|^(?P<fence>```+)(?P<language>\w*)[^\n]*\n(?P<text>.*?)^(?P=fence)$",
    re.DOTALL | re.MULTILINE,
)
_MARKERS: Final = re.compile(r"^<!-- page: ([\w ]+) -->$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """One block: ``line`` is that of its first line in the page."""

    page: Path
    line: int
    language: str
    text: str
    not_typed: str = ""
    typed_by: str = ""
    figures_vary: bool = False
    prints: tuple[str, ...] = ()
    status: int = 0
    with_spark: bool = False
    is_hidden: bool = False

    @property
    def is_code(self) -> bool:
        """True for what a reader would type."""
        return self.language in TYPED

    @property
    def is_typed(self) -> bool:
        """True for what the test of the page types."""
        return self.is_code and not self.not_typed and not self.typed_by

    @property
    def place(self) -> str:
        """Where the block is, as ``docs/page.md:12``."""
        page = self.page.relative_to(ROOT) if self.page.is_relative_to(ROOT) else self.page
        return f"{page}:{self.line}"


@dataclass(frozen=True)
class Command:
    """One command of the shell, and what a page says that it prints (None: the page does not)."""

    text: str
    prints: str | None = None


class UnknownMarkError(Exception):
    """A comment above a block is none of the marks."""


def blocks(page: Path) -> list[Block]:
    """Return the blocks of a page, hidden ones too, in their order."""
    text = page.read_text(encoding="utf-8")
    found = []
    marks: list[str] = []
    for match in _PIECE.finditer(text):
        line = text.count("\n", 0, match.start()) + 2
        if match["mark"] is not None:
            if not match["mark"].startswith("page: "):
                marks.append(match["mark"])
        elif match["hidden"] is not None:
            found.append(Block(page, line, "bash", match["hidden"], is_hidden=True))
        else:
            found.append(_marked(Block(page, line, match["language"], match["text"]), marks))
            marks = []
    return found


def _marked(block: Block, marks: list[str]) -> Block:
    for mark in marks:
        if mark == "figures vary":
            block = replace(block, figures_vary=True)
        elif mark == "with Spark":
            block = replace(block, with_spark=True)
        elif mark.startswith("prints "):
            block = replace(block, prints=(*block.prints, mark.removeprefix("prints ")))
        elif mark.startswith("exits with "):
            block = replace(block, status=int(mark.removeprefix("exits with ")))
        elif mark.startswith("not typed: "):
            block = replace(block, not_typed=mark.removeprefix("not typed: "))
        elif mark.startswith("typed by "):
            block = replace(block, typed_by=mark.removeprefix("typed by "))
        else:
            raise UnknownMarkError(f"{block.place}: {mark}")
    return block


def markers(page: Path) -> set[str]:
    """Return the names of pytest's markers that a page asks for."""
    return {name for found in _MARKERS.findall(page.read_text()) for name in found.split()}


def commands(block: Block) -> Iterator[Command]:
    """Yield the commands of a block of the shell."""
    if block.language != "console":
        yield from (Command(each) for each in _statements(block.text.splitlines()))
        return
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        lines = part.splitlines()
        count = 1
        while lines[count - 1].endswith("\\"):
            count += 1
        prints = "".join(f"{each}\n" for each in lines[count:])
        yield Command("\n".join(lines[:count]), prints)


def _statements(lines: list[str]) -> Iterator[str]:
    """Yield what a shell takes as one statement each, over several lines where it goes on."""
    pending: list[str] = []
    for line in lines:
        pending.append(line)
        text = "\n".join(pending)
        if not line.endswith("\\") and _is_complete(text):
            if text.strip() and not text.lstrip().startswith("#"):
                yield text
            pending = []
    assert not pending, f"bash waits for more after: {pending}"


def _is_complete(text: str) -> bool:
    """True where bash would not ask for another line."""
    if not re.search(r"<<|[({'\"]|^\s*(for|if|while|case|until)\b", text):
        return True
    done = subprocess.run(
        ["bash", "-n", "-c", text], capture_output=True, text=True, check=False, timeout=30
    )
    return done.returncode == 0 and not done.stderr


def left_out() -> list[Block]:
    """Return the blocks of all pages that their tests do not type."""
    return [
        each
        for page in PAGES
        for each in blocks(page)
        if each.is_code and (each.not_typed or each.typed_by)
    ]
