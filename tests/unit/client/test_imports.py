"""What a client costs to import: executors and short commands pay it every time."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import pkgutil, sys
import {package}
{body}
print(*sorted(name for name in {names!r} if name in sys.modules))
"""
EVERY_MODULE = """
for module in pkgutil.iter_modules({package}.__path__):
    __import__(f"{package}.{{module.name}}")
"""


def imported(package: str, names: list[str], body: str = "") -> str:
    script = SCRIPT.format(package=package, names=names, body=body.format(package=package))
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout.strip()


@pytest.mark.slow
def test_no_module_of_the_client_imports_numpy_or_arrow() -> None:
    heavy = ["numpy", "pyarrow", "asyncio", "millstream.storage", "millstream.server"]
    assert imported("millstream.client", heavy, EVERY_MODULE) == ""


@pytest.mark.parametrize("package", ["millstream.spark", "millstream.spark.options"])
def test_options_can_be_read_without_spark(package: str) -> None:
    assert imported(package, ["pyspark", "pyarrow", "numpy", "millstream.client.cluster"]) == ""


@pytest.mark.slow
def test_a_client_without_tls_and_sasl_loads_nothing_of_them() -> None:
    heavy = ["ssl", "cryptography", "millstream.security.tls", "millstream.client.tokens"]
    body = "import {package}.producer\n{package}.Producer(bootstrap_servers='127.0.0.1:1').close(0)"
    assert imported("millstream.client", heavy, body) == ""
