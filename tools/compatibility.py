"""Write the table of APIs in ``docs/compatibility.md`` from the routes, or check it.

    python tools/compatibility.py          writes it
    python tools/compatibility.py --check  says whether it is current, by its exit code

Only what stands between the two marks is written; the rest of the page is kept.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from millstream.handlers.routes import ROUTES, Route
from millstream.protocol.api import APIS, FIRST_INTERNAL_KEY, NEVER_FLEXIBLE, Api

PAGE: Final = Path(__file__).parents[1] / "docs" / "compatibility.md"
BEGIN: Final = "<!-- written by tools/compatibility.py: begin -->\n"
END: Final = "<!-- written by tools/compatibility.py: end -->\n"


def api_table() -> str:
    """Return the APIs that are served, and the names of those that are only known."""
    lines = ["| Key | API | Versions | Advertised from | First flexible |", "|--:|---|---|---|---|"]
    lines += [_row(route, APIS[key]) for key, route in sorted(ROUTES.items())]
    known = [
        api.name
        for key, api in sorted(APIS.items())
        if key not in ROUTES and key < FIRST_INTERNAL_KEY
    ]
    if known:
        lines += [
            "",
            "The codec also knows these; they are neither served nor advertised: "
            + ", ".join(known)
            + ".",
        ]
    return "\n".join(lines) + "\n"


def _row(route: Route, api: Api) -> str:
    versions = f"{route.first_version}–{route.last_version}"
    if route.first_version == route.last_version:
        versions = str(route.first_version)
    advertised = "" if route.advertised_from == route.first_version else str(route.advertised_from)
    if not route.is_advertised:
        advertised = "not advertised"
    flexible = "never" if api.first_flexible == NEVER_FLEXIBLE else str(api.first_flexible)
    return f"| {route.key} | {api.name} | {versions} | {advertised} | {flexible} |"


def updated(page: str) -> str:
    """Return the page with the present table between its marks."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{api_table()}{END}{after}"


def main() -> int:
    """Write or check; the exit code is 1 when the check fails."""
    page = PAGE.read_text(encoding="utf-8")
    if "--check" in sys.argv[1:]:
        return int(updated(page) != page)
    PAGE.write_text(updated(page), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
