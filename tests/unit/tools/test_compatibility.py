from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TOOL = Path(__file__).parents[3] / "tools" / "compatibility.py"


def test_the_table_of_apis_in_the_documentation_is_current() -> None:
    done = subprocess.run([sys.executable, str(TOOL), "--check"], check=False)
    assert done.returncode == 0, "write it again: python tools/compatibility.py"
