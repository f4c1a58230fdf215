"""What the broker loads when it loads this package: start-up time and idle memory depend on it."""

from __future__ import annotations

import subprocess
import sys

BROKER_SIDE = "batch builder compression control isolation limits record record_checks validation"


def test_the_broker_loads_neither_numpy_nor_the_codecs() -> None:
    imports = "; ".join(f"import millstream.records.{name}" for name in BROKER_SIDE.split())
    code = (
        f"import sys; {imports}; "
        "print(sorted({'numpy', 'pyarrow', 'cramjam'} & set(sys.modules)))"
    )
    output = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert output.stdout.strip() == "[]"
