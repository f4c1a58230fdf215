"""The Python of a page: a process that runs its blocks one after the other in one namespace.

It reads the paths of a block and of its output from standard input, and answers ``0`` or ``1``.
"""

from __future__ import annotations

import os
import sys
import traceback
from typing import Any


def main() -> None:
    """Run blocks until there are no more."""
    answers = os.fdopen(os.dup(1), "w")
    names: dict[str, Any] = {
        "__name__": "__main__",
        "BOOTSTRAP": os.environ["MILLSTREAM_BOOTSTRAP_SERVERS"],
    }
    for line in sys.stdin:
        block, output = line.split()
        os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 1)
        os.dup2(1, 2)
        failed = 0
        try:
            with open(block, encoding="utf-8") as source:
                exec(compile(source.read(), block, "exec"), names)
        except BaseException:
            traceback.print_exc()
            failed = 1
        sys.stdout.flush()
        print(failed, file=answers, flush=True)


if __name__ == "__main__":
    main()
