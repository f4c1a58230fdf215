"""The drawings of docs/concepts.md: ``python tools/draw_concepts.py`` writes them.

Each is an SVG file that a browser draws in the colours of its reader, light or dark. It has a
ground of its own, so that it can be read on any page.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

IMAGES: Final = Path(__file__).parents[1] / "docs" / "images"
WIDTH: Final = 760
CELL: Final = 34
_STYLE: Final = """
  svg { font: 14px system-ui, "Segoe UI", "Helvetica Neue", Arial, sans-serif; }
  .ground { fill: #ffffff; stroke: #d5dae1; }
  text { fill: #1d2733; }
  .faint { fill: #586575; font-size: 12.5px; }
  .strong { font-weight: 600; }
  .mono { font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; }
  .mono { font-size: 12.5px; }
  .middle { text-anchor: middle; } .end { text-anchor: end; }
  .box { fill: #eef2f7; stroke: #8795a6; }
  .good { fill: #d8efe0; stroke: #2f8052; }
  .chosen { fill: #dbe8fd; stroke: #2563c9; }
  .bad { fill: #fbe3df; stroke: #b8412d; stroke-dasharray: 4 3; }
  .empty { fill: none; stroke: #aab4c0; stroke-dasharray: 3 4; }
  .line { stroke: #586575; stroke-width: 1.5; fill: none; }
  .mark { stroke: #2563c9; stroke-width: 2; fill: none; }
  .stop { stroke: #b8412d; stroke-width: 2; fill: none; }
  .blue { fill: #1d4fa8; } .red { fill: #a3341f; } .green { fill: #1f6b41; }
  @media (prefers-color-scheme: dark) {
    .ground { fill: #1b2028; stroke: #39424f; }
    text { fill: #e6eaf0; }
    .faint { fill: #a9b4c2; }
    .box { fill: #2a323d; stroke: #7d8a9b; }
    .good { fill: #1d3f2d; stroke: #5fbf88; }
    .chosen { fill: #1f3660; stroke: #7aa7f5; }
    .bad { fill: #4a2620; stroke: #f08b78; }
    .empty { stroke: #5a6675; }
    .line { stroke: #a9b4c2; }
    .mark { stroke: #7aa7f5; }
    .stop { stroke: #f08b78; }
    .blue { fill: #9fc1ff; } .red { fill: #ffab9b; } .green { fill: #8fdcb0; }
  }
"""


class Drawing:
    """One file; ``title`` is what a reader hears who does not see it."""

    def __init__(self, name: str, title: str, height: int) -> None:
        self._name = name
        self._title = title
        self._height = height
        self._parts: list[str] = []

    def write(self, directory: Path) -> Path:
        """Write the file and return its path."""
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {self._height}" '
            f'width="{WIDTH}" height="{self._height}" role="img" aria-labelledby="t">'
        )
        arrow = "".join(
            f'<marker id="{name}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
            f'markerHeight="7" orient="auto"><path class="{kind}" d="M1 1L7 4L1 7"/></marker>'
            for name, kind in (("a", "line"), ("m", "mark"), ("s", "stop"))
        )
        ground = (
            f'<rect class="ground" x="0.5" y="0.5" width="{WIDTH - 1}" '
            f'height="{self._height - 1}" rx="8"/>'
        )
        path = directory / f"concept-{self._name}.svg"
        text = "\n".join(
            [
                head,
                f'<title id="t">{escape(self._title)}</title>',
                f"<style>{_STYLE}</style>",
                f"<defs>{arrow}</defs>",
                ground,
                *self._parts,
                "</svg>\n",
            ]
        )
        path.write_text(text, encoding="utf-8")
        return path

    def text(self, x: float, y: float, text: str, kind: str = "") -> None:
        """Write a line of text; ``y`` is its base line."""
        self._parts.append(f'<text class="{kind}" x="{x}" y="{y}">{escape(text)}</text>')

    def box(
        self, x: float, y: float, width: float, height: float, text: str = "", kind: str = "box"
    ) -> None:
        """Draw a box with a text in its middle."""
        self._parts.append(
            f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="4"/>'
        )
        if text:
            self.text(x + width / 2, y + height / 2 + 5, text, "middle")

    def path(self, data: str, kind: str = "line", *, arrow: bool = True) -> None:
        """Draw a line, by default with an arrow at its end."""
        marker = {"line": "a", "mark": "m", "stop": "s"}[kind]
        end = f' marker-end="url(#{marker})"' if arrow else ""
        self._parts.append(f'<path class="{kind}" d="{data}"{end}/>')

    def cells(self, x: float, y: float, kinds: dict[str, str]) -> None:
        """Draw records side by side: the text of each, and its kind of box."""
        for number, (text, kind) in enumerate(kinds.items()):
            self.box(x + number * CELL, y, CELL - 4, 30, text.strip(), kind)


def records(first: int, end: int, kind: str = "box") -> dict[str, str]:
    """Return the records of offsets as cells."""
    return {str(offset): kind for offset in range(first, end)}


def log() -> Drawing:
    """A log: segments, their indexes, both ends."""
    page = Drawing("log", "A log with three segments, each with a log file and two indexes", 300)
    page.text(20, 30, "orders-0", "strong mono")
    page.text(100, 30, "one partition: a directory with a log in segments", "faint")
    names = ("00000000000000000000", "00000000000000000400", "00000000000000000850")
    for number, name in enumerate(names):
        x = 20 + number * 240
        is_active = number == len(names) - 1
        page.text(x, 72, name + ".log", "mono")
        for batch in range(6 if not is_active else 3):
            page.box(x + batch * 37, 84, 33, 34, "", "chosen" if is_active else "box")
        if is_active:
            page.box(x + 3 * 37, 84, 33, 34, "", "empty")
        page.box(x, 140, 106, 40, "")
        page.text(x + 53, 158, ".index", "mono middle")
        page.text(x + 53, 173, "offset → byte", "faint middle")
        page.box(x + 114, 140, 106, 40, "")
        page.text(x + 167, 158, ".timeindex", "mono middle")
        page.text(x + 167, 173, "time → offset", "faint middle")
    page.path("M13 215V101H18", "stop")
    page.text(14, 235, "log start offset: 0", "red")
    page.text(14, 253, "Retention deletes whole segments", "faint")
    page.text(14, 270, "here, and moves it to the right.", "faint")
    page.text(260, 235, "A closed segment", "strong")
    page.text(260, 253, "does not change. Its name is the", "faint")
    page.text(260, 270, "offset of its first record.", "faint")
    page.path("M610 215V122", "mark")
    page.text(510, 235, "log end offset: 1,000", "blue")
    page.text(510, 253, "The active segment: the next batch", "faint")
    page.text(510, 270, "is appended here.", "faint")
    return page


def lookup() -> Drawing:
    """The look-up of an offset."""
    page = Drawing("lookup", "How the record with offset 33 is found in three steps", 330)
    for x, title, note in (
        (20, "1  Which segment?", "the last name at or below 33"),
        (255, "2  Where about?", "the last index entry at or below 33"),
        (500, "3  Which batch?", "read on from there"),
    ):
        page.text(x, 32, title, "strong")
        page.text(x, 50, note, "faint")
    for number, (name, kind) in enumerate(
        (("00000000000000000000", "chosen"), ("00000000000000000060", "box"))
    ):
        page.box(20, 74 + number * 46, 185, 36, "", kind)
        page.text(112, 97 + number * 46, name, "mono middle")
    page.text(20, 186, "File names alone answer this;", "faint")
    page.text(20, 203, "no file is opened.", "faint")
    page.text(255, 78, "offset", "faint")
    page.text(340, 78, "byte", "faint")
    entries = ((7, 313), (11, 626), (15, 959), (27, 1344), (39, 1731), (51, 2167))
    for number, (offset, position) in enumerate(entries):
        y = 86 + number * 34
        page.box(255, y, 160, 28, "", "chosen" if offset == 27 else "box")
        page.text(270, y + 19, str(offset), "mono")
        page.text(340, y + 19, f"{position:,}", "mono")
    page.text(255, 312, "Sorted, so it is searched by halving.", "faint")
    page.path("M207 92C232 92 232 96 251 96")
    page.path("M417 202C460 202 455 104 496 104", "mark")
    for number, (offsets, position, kind) in enumerate(
        (("24 to 27", 1344, "box"), ("28 to 31", 1471, "box"), ("32 to 35", 1598, "good"))
    ):
        y = 86 + number * 46
        page.box(500, y, 160, 36, "", kind)
        page.text(512, y + 23, offsets)
        page.text(668, y + 23, f"at {position:,}", "mono")
        if number < 2:
            page.path(f"M580 {y + 37}V{y + 44}")
    page.path("M580 215V247")
    page.box(500, 250, 160, 36, "record 33", "good")
    page.text(500, 312, "About 4 KiB are passed over.", "faint")
    return page


def replication() -> Drawing:
    """The high watermark with a slow follower."""
    page = Drawing(
        "replication", "The high watermark waits for a slow follower until it leaves the ISR", 420
    )
    for top, title, isr, watermark in (
        (0, "Broker 3 is slow, and still in sync", "ISR: 1, 2, 3", 6),
        (205, "30 seconds later it has left the ISR", "ISR: 1, 2", 10),
    ):
        page.text(20, top + 30, title, "strong")
        page.text(740, top + 30, isr, "end strong blue")
        x = 150
        for row, (name, end) in enumerate(
            (("broker 1, leader", 10), ("broker 2", 10), ("broker 3", 6))
        ):
            y = top + 52 + row * 42
            page.text(20, y + 20, name)
            cells = {str(each): "good" if each < watermark else "box" for each in range(end)}
            page.cells(x, y, cells)
            page.text(x + end * CELL + 8, y + 20, f"LEO {end}", "faint")
        at = x + watermark * CELL - 2
        page.path(f"M{at} {top + 44}V{top + 178}", "mark", arrow=False)
        page.text(at + 6, top + 176, f"HW {watermark}", "blue strong")
        page.text(
            570,
            top + 72,
            "0 to 5 are committed" if watermark == 6 else "0 to 9 are committed",
            "green strong",
        )
        notes = (
            ("Consumers read these.", "acks=all of 6 to 9 waits.")
            if watermark == 6
            else ("acks=all of 6 to 9: done.", "Broker 3 may not lead.")
        )
        for number, note in enumerate(notes):
            page.text(570, top + 94 + number * 18, note, "faint")
    page.path("M20 204H740", arrow=False)
    return page


def election() -> Drawing:
    """An election, and what the old leader does afterwards."""
    page = Drawing("election", "An election in four steps, with leader epochs 5 and 6", 440)
    steps = (
        (
            "1  Epoch 5: broker 1 leads",
            {"7": "good", "8": "good", "9": "box"},
            {"7": "good", "8": "good"},
            "9 is on broker 1 alone, so it is not committed",
            "and its producer has no answer yet.",
        ),
        (
            "2  Broker 1 dies; the controller chooses broker 2: epoch 6",
            {"7": "empty", "8": "empty", "9": "empty"},
            {"7": "good", "8": "good"},
            "Only a replica of the ISR may lead: it has",
            "everything that was acknowledged.",
        ),
        (
            "3  Epoch 6: broker 2 leads, and takes new records",
            {"7": "empty", "8": "empty", "9": "empty"},
            {"7": "good", "8": "good", "9'": "chosen"},
            "The producer sends again, and another record",
            "gets offset 9. A leader of epoch 5 is refused.",
        ),
        (
            "4  Broker 1 comes back, as a follower",
            {"7": "good", "8": "good", "9": "bad", "9'": "chosen"},
            {"7": "good", "8": "good", "9'": "chosen"},
            "It asks where epoch 5 ended: at 9. It cuts off",
            "its own 9, and fetches the leader's.",
        ),
    )
    for number, (title, first, second, *notes) in enumerate(steps):
        top = number * 106
        page.text(20, top + 30, title, "strong")
        for row, cells in enumerate((first, second)):
            y = top + 42 + row * 34
            leads = (row == 0) == (number == 0) and not (number == 1 and row == 0)
            name = f"broker {row + 1}" + (", leader" if leads and number != 1 else "")
            if number in (1, 2) and row == 0:
                name += ", down"
            page.text(20, y + 20, name, "" if "down" not in name else "faint")
            page.cells(160, y, cells)
        page.text(420, top + 62, notes[0], "faint")
        page.text(420, top + 80, notes[1], "faint")
        if number < len(steps) - 1:
            page.path(f"M20 {top + 114}H740", arrow=False)
    return page


def exactly_once() -> Drawing:
    """A load into a table."""
    page = Drawing("exactly-once", "One commit holds the data files and the offsets", 380)
    page.text(20, 30, "topic hits", "strong")
    page.cells(20, 44, records(0, 4, "good") | records(4, 9, "chosen") | records(9, 12))
    page.text(88, 92, "in the table", "green middle")
    page.text(240, 92, "this batch: 4 to 8", "blue middle")
    page.text(376, 92, "later", "faint middle")
    page.box(20, 140, 190, 64, "")
    page.text(115, 165, "read the table’s ledger:", "middle")
    page.text(115, 186, "“ended before 4”", "middle green strong")
    page.path("M212 172H262")
    page.box(266, 140, 190, 64, "")
    page.text(361, 165, "write Parquet files", "middle")
    page.text(361, 186, "nobody sees them yet", "middle faint")
    page.path("M458 172H508", "mark")
    page.box(512, 122, 228, 100, "", "chosen")
    page.text(626, 146, "one commit of the table", "middle strong")
    page.text(626, 172, "+ the files with 4 to 8", "middle")
    page.text(626, 194, "+ ledger: “ended before 9”", "middle")
    page.path("M626 224V250H115V208", "line")
    page.text(370, 268, "the next batch", "faint middle")
    page.text(20, 306, "killed before the commit", "strong red")
    page.text(20, 326, "The table is as it was. The next run reads “before 4”, and", "faint")
    page.text(20, 344, "lands 4 to 8 again. The files of before belong to nothing.", "faint")
    page.text(400, 306, "killed after the commit", "strong green")
    page.text(400, 326, "Files and ledger are both there. The next", "faint")
    page.text(400, 344, "run reads “before 9”, and goes on with 9.", "faint")
    return page


DRAWINGS: Final = (log, lookup, replication, election, exactly_once)


def main(directory: Path = IMAGES) -> None:
    """Write all drawings."""
    for draw in DRAWINGS:
        print(draw().write(directory))


if __name__ == "__main__":
    main()
