"""Gives the kernel hostile input while gcc's sanitizers watch every read and write of it.

``python native/sanitize.py [ROUNDS [SEED]]`` compiles it with the address and the
undefined-behaviour sanitizers, into a directory that goes afterwards, and runs ``TESTS`` with it in
a Python whose memory comes from malloc, so that each buffer has bounds. It prints the seed, another
one each time unless it is given. Needs gcc and what the tests need; takes some minutes.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

NATIVE = Path(__file__).resolve().parent
TESTS = (
    "tests/property/test_kernel_fuzz.py",
    "tests/property/test_native_codec.py",
    "tests/property/test_avro_kernel.py",
    "tests/property/test_json_columns.py",
    "tests/property/test_json_lines.py",
    "tests/property/test_json_names.py",
    "tests/property/test_protobuf_kernel.py",
    "tests/property/test_rows_fuzz.py",
)
FLAGS = ["-std=c11", "-O1", "-g", "-fno-omit-frame-pointer", "-shared", "-fPIC"]
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]


def main(rounds: str = "100", seed: str = "") -> int:
    """Build and run; return the exit code of the tests."""
    seed = seed or str(random.randrange(10**6))
    print(f"rounds {rounds}, seed {seed}", flush=True)
    gcc = shutil.which("gcc")
    if gcc is None:
        print("gcc, with its sanitizers, is needed and is not there", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="millstream-sanitize-") as directory:
        library = Path(directory, "_kernel.so")
        sources = map(str, sorted(NATIVE.glob("*.c")))
        subprocess.run(
            [gcc, *FLAGS, *SANITIZERS, "-fvisibility=hidden", *sources, "-o", str(library)],
            check=True,
        )
        # Uncaptured, for a finding ends the process.
        command = [sys.executable, "-m", "pytest", "-qs", "-p", "no:cacheprovider", *TESTS]
        variables = environment(gcc, library) | {
            "MILLSTREAM_FUZZ_ROUNDS": rounds,
            "MILLSTREAM_FUZZ_SEED": seed,
        }
        return subprocess.run(command, cwd=NATIVE.parent, env=variables, check=False).returncode


def environment(gcc: str, library: Path) -> dict[str, str]:
    """Return the environment in which Python can load the library, and finds what it does."""
    runtimes = [
        subprocess.run(
            [gcc, f"-print-file-name={name}"], capture_output=True, text=True, check=True
        ).stdout.strip()
        for name in ("libasan.so", "libubsan.so")
    ]
    return os.environ | {
        "LD_PRELOAD": " ".join(runtimes),
        # What Python itself leaves allocated at its end is not looked at.
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1:allocator_may_return_null=1",
        "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
        "PYTHONMALLOC": "malloc",
        "ARROW_DEFAULT_MEMORY_POOL": "system",
        "MILLSTREAM_FUZZ_KERNEL": str(library),
    }


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
