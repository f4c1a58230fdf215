"""Every command on every page, typed in the order of the page, against real brokers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.pages.blocks import PAGES, ROOT, Block, blocks, commands, markers
from tests.pages.printed import shows
from tests.pages.terminal import PageError, Terminal

pytestmark = pytest.mark.system


def typed_pages() -> list[Any]:
    """Return the pages that have something to type, with their markers; a page with blocks for
    Spark a second time, with Spark.
    """
    found = []
    for page in PAGES:
        typed = [each for each in blocks(page) if each.is_typed]
        name = str(page.relative_to(ROOT))
        marks = [getattr(pytest.mark, each) for each in sorted(markers(page))]
        if not all(each.with_spark or each.is_hidden for each in typed):
            found.append(pytest.param(page, False, id=name, marks=marks))
        if any(each.with_spark for each in typed):
            spark = [pytest.mark.spark, pytest.mark.long]
            found.append(pytest.param(page, True, id=f"{name} with Spark", marks=marks + spark))
    return found


def type_block(terminal: Terminal, block: Block) -> None:
    said = ""
    if block.language == "python":
        said = terminal.run_python(block.text)
    else:
        for command in commands(block):
            printed = terminal.type(command.text, expected_status=block.status)
            if command.prints and not shows(
                command.prints, printed, figures_vary=block.figures_vary
            ):
                raise PageError(f"$ {command.text}\nprints\n{printed}\nnot\n{command.prints}")
            said += printed
    for text in block.prints:
        if text not in said:
            raise PageError(f"{block.text}prints\n{said}\nwithout\n{text}")


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("page", "with_spark"), typed_pages())
def test_every_command_of_the_page_does_what_it_says(
    page: Path, with_spark: bool, tmp_path: Path
) -> None:
    with Terminal(tmp_path) as terminal:
        for block in blocks(page):
            if block.is_typed and (with_spark or not block.with_spark):
                try:
                    type_block(terminal, block)
                except PageError as problem:
                    pytest.fail(f"{block.place}\n{problem}", pytrace=False)
