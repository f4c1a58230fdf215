"""Whether what a command has printed is what a page shows."""

from __future__ import annotations

import re
from typing import Final

_NUMBER: Final = re.compile(r"\d[\d,.:]*")
_UNIT: Final = re.compile(r"# (B|kB|KB|MB|GB|µs|us|ms|s|min)\b")


def shows(page: str, printed: str, *, figures_vary: bool = False) -> bool:
    """True if the text of the page, with its ``…``, describes all that was printed."""
    pattern = []
    for line in _lines(page, figures_vary):
        if line == "…":
            pattern.append(r"(?:.*\n)*")
        else:
            parts = (re.escape(each) for each in line.split("…"))
            pattern.append(".*".join(parts) + r"\n")
    text = "".join(f"{each}\n" for each in _lines(printed, figures_vary))
    return re.fullmatch("".join(pattern), text) is not None


def _lines(text: str, figures_vary: bool) -> list[str]:
    lines = [each.rstrip() for each in text.rstrip().splitlines()]
    if not figures_vary:
        return lines
    return [re.sub(r"\s+", " ", _UNIT.sub("# unit", _NUMBER.sub("#", each))) for each in lines]
