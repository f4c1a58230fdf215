"""Entry point: `serve` and `keeper` take the short way, everything else goes through typer."""

from __future__ import annotations

import sys
from collections.abc import Sequence

HELP_FLAGS = frozenset({"--help", "-h"})


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 done, 1 failed, 2 wrongly called, 130 Ctrl-C.

    ``arguments`` are the words after the program's name; by default those of this process.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if words[:1] == ["serve"] and HELP_FLAGS.isdisjoint(words):
            from millstream.cli.serve import serve

            return serve(words[1:])
        if words[:1] == ["keeper"] and HELP_FLAGS.isdisjoint(words):
            from millstream.cli.keeper import keeper

            return keeper(words[1:])
        from millstream.cli.app import run

        return run(words)
    except KeyboardInterrupt:  # while modules were imported
        from millstream.cli.failures import INTERRUPTED

        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
