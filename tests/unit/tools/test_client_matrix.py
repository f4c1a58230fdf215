from __future__ import annotations

from tests.interop.secured.matrix import PAGE, updated


def test_the_table_of_clients_in_the_documentation_is_current() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert updated(page) == page, "write it again: python -m tests.interop.secured.matrix"
