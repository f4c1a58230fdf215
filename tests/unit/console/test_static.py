"""What holds for every file of the console's front end without a browser."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from importlib import resources
from pathlib import Path

import pytest

STATIC = Path(str(resources.files("millstream.console"))) / "static"
FILES = sorted(path for path in STATIC.rglob("*") if path.is_file())
SCRIPTS = [path for path in FILES if path.suffix == ".js"]
NAMESPACES = {"http://www.w3.org/2000/svg"}


def test_no_file_names_another_host() -> None:
    found = {
        (path.name, url)
        for path in FILES
        for url in re.findall(r"(?:https?:)?//[a-z0-9-]+\.[a-z0-9./-]+", path.read_text())
        if url not in NAMESPACES
    }
    assert found == set()


def test_a_page_needs_neither_inline_scripts_nor_inline_styles() -> None:
    page = (STATIC / "index.html").read_text()
    assert re.findall(r"<script(?![^>]*\bsrc=)[^>]*>", page) == []
    assert re.findall(r"<style|\sstyle=|\son[a-z]+=", page) == []


def test_text_never_becomes_markup() -> None:
    ways = re.compile(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function"
    )
    assert [path.name for path in SCRIPTS if ways.search(path.read_text())] == []


def test_what_files_refer_to_exists() -> None:
    missing = [
        (path.name, target)
        for path in SCRIPTS
        for target in re.findall(r'^import .*from "(\.[^"]+)";', path.read_text(), re.MULTILINE)
        if not (path.parent / target).resolve().is_file()
    ]
    page = (STATIC / "index.html").read_text()
    missing += [
        ("index.html", target)
        for target in re.findall(r'"/static/([^"]+)"', page)
        if not (STATIC / target).is_file()
    ]
    assert missing == []


def test_every_script_is_used() -> None:
    used = set(re.findall(r'([\w-]+\.js)"', "".join(path.read_text() for path in FILES)))
    assert {path.name for path in SCRIPTS} - used == set()


def node(*arguments: str, given: str | None = None) -> subprocess.CompletedProcess[str]:
    found = shutil.which("node")
    if found is None:
        pytest.skip("needs node, to run the pure parts of the front end")
    return subprocess.run(
        [found, *arguments], input=given, text=True, capture_output=True, check=False
    )


def evaluate(module: str, expression: str) -> object:
    """Import a pure module as ``m`` and return the value of an expression."""
    source = f'import * as m from "{(STATIC / "js" / module).as_uri()}";'
    ran = node("--input-type=module", "-e", f"{source}console.log(JSON.stringify({expression}));")
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_every_script_parses(path: Path) -> None:
    ran = node("--check", "--input-type=module", "-", given=path.read_text())
    assert ran.returncode == 0, ran.stderr


def test_a_look_up_ends_at_the_batch_that_holds_the_offset() -> None:
    wrong = evaluate(
        "lookup.js",
        """(() => {
            const log = m.sampleLog();
            const wrong = [];
            for (let offset = 0; offset < log.end_offset; offset += 1) {
                const last = m.stepsForOffset(log, offset).at(-1);
                const batch = log.segments[last.segment].batches[last.batch];
                const holds = batch.first_offset <= offset && offset <= batch.last_offset;
                if (!last.found || !holds) wrong.push(offset);
            }
            return wrong;
        })()""",
    )
    assert wrong == []


@pytest.mark.parametrize("offset", [-1, 605, 10**12])
def test_an_offset_that_the_log_does_not_hold_is_said_to_be_out_of_range(offset: int) -> None:
    steps = evaluate("lookup.js", f"m.stepsForOffset(m.sampleLog(), {offset})")
    assert isinstance(steps, list)
    assert [step["title"] for step in steps] == ["Out of range"]


def test_the_high_watermark_waits_for_a_paused_follower_until_it_leaves_the_isr() -> None:
    told = evaluate(
        "replica-model.js",
        """(() => {
            const model = m.newModel();
            const seen = [];
            const run = (ticks) => {
                for (let i = 0; i < ticks; i += 1) m.tick(model);
                seen.push([model.isr, model.high_watermark, model.replicas[2].leo]);
            };
            model.replicas[2].paused = true;
            run(5);
            run(15);
            model.replicas[2].paused = false;
            run(30);
            return seen;
        })()""",
    )
    assert isinstance(told, list)
    (isr, held, paused_at), (smaller, moved, still), (whole, _, _) = told
    assert (isr, held) == ([1, 2, 3], paused_at)
    assert smaller == [1, 2]
    assert moved > still == paused_at
    assert whole == [1, 2, 3]


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("m.bytes(0)", "0 B"),
        ("m.bytes(1536)", "1.5 KiB"),
        ("m.bytes(null)", "–"),
        ("m.count(1234567)", "1,234,567"),
        ("m.seconds(3661)", "1 h 1 min"),
        ("m.time(0)", "1970-01-01 00:00:00.000"),
        ("m.plural(1, 'broker')", "1 broker"),
    ],
)
def test_values_are_shown_in_plain_units(given: str, shown: str) -> None:
    assert evaluate("format.js", given) == shown
