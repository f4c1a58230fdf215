"""A broker without security loads nothing of it."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.slow
def test_cryptography_is_not_loaded_where_nobody_asks_for_it() -> None:
    code = (
        "import sys, millstream.server.lifecycle\n"
        "heavy = ('cryptography', 'joserfc', 'kazoo', 'millstream.security.tls')\n"
        "print([name for name in heavy if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, timeout=60)
    assert done.stdout.strip() == b"[]"
