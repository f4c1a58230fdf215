"""The process behind `serve --console`: `millstream console` until its standard input ends."""

from __future__ import annotations

import os
import signal
import sys
import threading


def _stop_at_the_end_of_input() -> None:
    while os.read(sys.stdin.fileno(), 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    threading.Thread(target=_stop_at_the_end_of_input, daemon=True).start()
    from millstream.cli.main import main

    sys.exit(main(["console", *sys.argv[1:]]))
