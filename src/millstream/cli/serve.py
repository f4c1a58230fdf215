"""`millstream serve`: put the settings together and run one broker until it is told to stop."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.cli.serve_arguments import (
    ServeArguments,
    UsageError,
    parse_arguments,
    settings_from_arguments,
)
from millstream.model.errors import MillstreamError

if TYPE_CHECKING:
    from millstream.config.broker import BrokerConfig


def serve(words: Sequence[str]) -> int:
    """Run a broker with the command line ``words``; return the exit code of the process."""
    try:
        arguments = parse_arguments(words)
    except UsageError as error:
        _say(f"millstream serve: {error}")
        return 2
    try:
        config = broker_config(arguments, os.environ)
        from millstream.server.lifecycle import run

        return run(config, announce)
    except (MillstreamError, OSError) as error:
        _say(f"millstream serve: {error}")
        return 1
    except KeyboardInterrupt:
        return 130


def broker_config(arguments: ServeArguments, environment: Mapping[str, str]) -> BrokerConfig:
    """Merge file, environment and command line, the later over the earlier.

    ConfigError names the setting that is wrong.
    """
    from millstream.config.broker import BrokerConfig, all_broker_keys
    from millstream.config.properties import from_environment, parse_properties

    settings: dict[str, str] = {}
    if arguments.properties_file is not None:
        settings |= parse_properties(Path(arguments.properties_file).read_text(encoding="utf-8"))
    settings |= from_environment(environment, all_broker_keys())
    settings |= settings_from_arguments(arguments, settings)
    return BrokerConfig(settings)


def announce(host: str, port: int, directories: list[str]) -> None:
    """Print the first line of output: where the broker listens and where its data lies."""
    print(f"millstream listening on {host}:{port}, data in {', '.join(directories)}", flush=True)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
