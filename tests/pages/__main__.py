"""``python -m tests.pages``: the blocks of each page, and those that its test does not type."""

from __future__ import annotations

from tests.pages.blocks import PAGES, ROOT, blocks

if __name__ == "__main__":
    for page in PAGES:
        code = [each for each in blocks(page) if each.is_code]
        typed = sum(each.is_typed for each in code)
        if code:
            print(f"{page.relative_to(ROOT)}: {typed} of {len(code)} blocks are typed")
        for each in code:
            if each.not_typed:
                print(f"  {each.line}: not typed: {each.not_typed}")
            elif each.typed_by:
                print(f"  {each.line}: typed by {each.typed_by}")
