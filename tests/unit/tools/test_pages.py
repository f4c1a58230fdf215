"""How pages are read (`tests/pages`), and that nothing on them escapes the test that types them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.pages.blocks import PAGES, ROOT, Block, UnknownMarkError, blocks, commands, left_out
from tests.pages.ports import Ports
from tests.pages.printed import shows

NOT_TYPED = 17
"""Blocks that nobody can type in a test; each has its reason: ``python -m tests.pages``."""


def page(directory: Path, text: str) -> Path:
    written = directory / "page.md"
    written.write_text(text)
    return written


def test_blocks_and_their_marks(tmp_path: Path) -> None:
    text = (
        "# A page\n\n<!-- typed first\nmillstream serve\n-->\n\n"
        "<!-- figures vary -->\n<!-- prints two -->\n"
        "```console\n$ one \\\n    more  # why\n2 s\n$ two\n```\n\n"
        "<!-- not typed: needs a moon -->\n```sh\nfly\n```\n\n```text\nlook\n```\n"
    )
    first, shell, unable, look = blocks(page(tmp_path, text))
    assert (first.text, first.is_hidden, first.is_typed) == ("millstream serve\n", True, True)
    assert (shell.line, shell.figures_vary, shell.prints) == (10, True, ("two",))
    assert [(each.text, each.prints) for each in commands(shell)] == [
        ("one \\\n    more  # why", "2 s\n"),
        ("two", ""),
    ]
    assert (unable.not_typed, unable.is_typed) == ("needs a moon", False)
    assert (look.is_code, look.is_typed) == (False, False)


def test_a_mark_that_is_misspelt_is_an_error(tmp_path: Path) -> None:
    wrong = page(tmp_path, "<!-- not type: x -->\n```sh\ntrue\n```\n")
    with pytest.raises(UnknownMarkError, match=r"page\.md:3: not type: x"):
        blocks(wrong)


def test_statements_over_several_lines_are_one_command() -> None:
    text = (
        "cat > file <<'END'\na\nEND\n# why\n\nfor x in 1 2; do\n  echo $x\ndone\n"
        "printf 'it is\\n' \\\n  | cat\n"
    )
    found = [each.text for each in commands(Block(ROOT, 1, "sh", text))]
    assert found == [
        "cat > file <<'END'\na\nEND",
        "for x in 1 2; do\n  echo $x\ndone",
        "printf 'it is\\n' \\\n  | cat",
    ]


@pytest.mark.parametrize(
    ("shown", "printed", "vary", "expected"),
    [
        ("a  b\n", "a  b\n", False, True),
        ("a b\n", "a  b\n", False, False),
        ("a\n", "a\nb\n", False, False),
        ("a\n…\nd\n", "a\nb\nc\nd\n", False, True),
        ("…\nd\n", "d\n", False, True),
        ("to …/x: ok\n", "to /tmp/y/x: ok\n", False, True),
        ("20 records in 3.1 s\n", "19 records in 900 ms\n", False, False),
        ("20 records in 3.1 s\n", "19 records in 900 ms\n", True, True),
        ("20 records\n", "20 lines\n", True, False),
    ],
)
def test_what_a_page_shows(shown: str, printed: str, vary: bool, expected: bool) -> None:
    assert shows(shown, printed, figures_vary=vary) is expected


def test_ports_of_a_page_stand_for_free_ones() -> None:
    ports = Ports()
    typed = ports.into("serve --port 9092 -b localhost:9093,localhost:8081 at 10:30, 127.0.0.1:0x")
    first, second, other = map(int, re.findall(r"(?:port |t:)(\d{4,5})", typed))
    assert second == first + 1
    assert other == ports[8081] not in (first, second)
    assert typed.endswith("at 10:30, 127.0.0.1:0x")
    assert ports.back(f"on {first} and {other}") == "on 9092 and 8081"


def test_what_looks_like_a_command_is_in_a_block_that_is_typed() -> None:
    for each in PAGES:
        text = each.read_text(encoding="utf-8")
        for block in blocks(each):
            assert block.language or each.parent.name == "formats", (
                f"{block.place} does not say what language it is"
            )
            if not block.is_code:
                lines = block.text.splitlines()
                assert not [line for line in lines if re.match(r"(\$ )?millstream ", line)], (
                    block.place
                )
        outside = re.sub(r"^```.*?^```$|^<!--.*?-->$", "", text, flags=re.DOTALL | re.MULTILINE)
        assert not re.findall(r"^    millstream .*", outside, re.MULTILINE), each


@pytest.mark.slow
def test_what_is_left_out_has_a_reason_and_is_counted() -> None:
    left = left_out()
    for each in left:
        if each.typed_by:
            assert (ROOT / each.typed_by).exists(), each.place
    unable = [f"{each.place}: {each.not_typed}" for each in left if each.not_typed]
    print("\n".join(unable))
    assert len(unable) == NOT_TYPED, unable
