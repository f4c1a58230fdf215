"""What the results say of the interpreter."""

from __future__ import annotations

import sys
import sysconfig

import pytest
from bench.machine import build_of, interpreter


@pytest.mark.parametrize(
    ("arguments", "vendor", "told"),
    [
        ("'--prefix=/usr/local' '--enable-optimizations' '--with-lto'", "", "PGO and LTO"),
        ("'--enable-optimizations'", "", "PGO"),
        ("'--enable-shared' 'LDFLAGS=-L/lib'", "", "neither PGO nor LTO"),
        ("'--with-lto' '--enable-experimental-jit=yes-off'", "", "LTO, JIT built in"),
        ("'--prefix=/usr'", "Debian", "Debian's build: PGO and LTO, not told by CONFIG_ARGS"),
    ],
)
def test_how_an_interpreter_was_built(arguments: str, vendor: str, told: str) -> None:
    assert build_of(arguments, vendor) == told


def test_every_result_names_the_arguments_of_configure() -> None:
    facts = interpreter()
    arguments = sysconfig.get_config_var("CONFIG_ARGS") or "not known"
    assert facts["CONFIG_ARGS"] == arguments.replace(sys.base_prefix, "PREFIX")
    assert sys.base_prefix not in facts["CONFIG_ARGS"]
    assert facts["Python"].startswith(sysconfig.get_python_version())
