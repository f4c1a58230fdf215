"""`pip install` of a page: nothing is installed, but what is named has to be there."""

from __future__ import annotations

import re
import sys
import tomllib

from tests.pages.blocks import ROOT


def main(words: list[str]) -> int:
    """Return the exit status."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    if words[:1] != ["install"]:
        print(f"a page says pip {words}", file=sys.stderr)
        return 2
    for word in words[1:]:
        found = re.fullmatch(r"(?:millstream|\.)\[([\w,]+)\]", word)
        for extra in found[1].split(",") if found else []:
            if extra not in extras:
                print(f"there is no extra {extra}", file=sys.stderr)
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
