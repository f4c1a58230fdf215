"""Compare a broker's answers with Apache Kafka's.

From the root of the repository::

    python -m tests.interop.differential run [--bootstrap HOST:PORT] [--api Fetch] [--scenario TEXT]
        send the scenarios to a running broker and print every field that is not as Kafka's;
        --scenario takes a part of a name, --show prints the answers too, --all prints also the
        differences that allowed.py explains. Without --bootstrap a Millstream is started
        with the settings that Kafka had (settings.py) and log.record.validation as
        --validation says
    python -m tests.interop.differential list [--api Fetch]
        print the names of the scenarios
    python -m tests.interop.differential record [--bootstrap HOST:PORT] [--api Fetch]
        send them to Apache Kafka 4.3 (started here unless an address is given) and keep its answers
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.broker_process import BrokerProcess
from tests.interop.differential import recorded, runner
from tests.interop.differential.allowed import unexplained
from tests.interop.differential.scenario import Scenario, all_scenarios
from tests.interop.differential.session import Session
from tests.interop.differential.settings import BROKER_SETTINGS
from tests.interop.kafka_cluster import kafka_version, small_kafka_node


def _chosen(options: argparse.Namespace) -> list[Scenario]:
    return [
        each
        for each in all_scenarios()
        if options.api in (None, each.api) and (options.scenario or "") in str(each)
    ]


def _run(options: argparse.Namespace) -> int:
    if options.bootstrap:
        return _compare(options, options.bootstrap)
    with (
        tempfile.TemporaryDirectory() as directory,
        BrokerProcess(
            Path(directory), BROKER_SETTINGS | {"log.record.validation": options.validation}
        ) as broker,
    ):
        return _compare(options, broker.bootstrap)


def _compare(options: argparse.Namespace, bootstrap: str) -> int:
    runner.prepare(Session(bootstrap))
    different = 0
    chosen = _chosen(options)
    for scenario in chosen:
        outcome = runner.perform(scenario, Session(bootstrap))
        expected = recorded.load(scenario.api).get(scenario.name)
        lines = ["nothing recorded"] if expected is None else runner.compare(outcome, expected)
        if not options.all:
            is_strict = options.validation == "strict"
            lines = unexplained(str(scenario), lines, is_strict=is_strict)
        different += bool(lines)
        if lines:
            print(f"{scenario}\n  " + "\n  ".join(lines))
        if options.show:
            for step, answer in outcome.steps:
                print(f"  {step}: {answer}")
    print(f"{len(chosen) - different} of {len(chosen)} scenarios answer as Kafka does")
    return 1 if different else 0


def _list(options: argparse.Namespace) -> int:
    chosen = _chosen(options)
    for scenario in chosen:
        print(scenario)
    print(f"{len(chosen)} scenarios", file=sys.stderr)
    return 0


def _record(options: argparse.Namespace) -> int:
    is_complete = options.scenario is None
    if options.bootstrap:
        return runner.record(
            _chosen(options), lambda: Session(options.bootstrap), is_complete=is_complete
        )
    with (
        tempfile.TemporaryDirectory() as directory,
        small_kafka_node(Path(directory), BROKER_SETTINGS) as node,
    ):
        recorded.save_settings(kafka_version(), BROKER_SETTINGS)
        return runner.record(
            _chosen(options), lambda: Session(node.bootstrap), is_complete=is_complete
        )


def main() -> int:
    """Read the command line and do what it says."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.interop.differential",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True)
    for name, function in (("run", _run), ("list", _list), ("record", _record)):
        command = commands.add_parser(name)
        command.set_defaults(function=function)
        command.add_argument("--api")
        command.add_argument("--scenario")
        if name != "list":
            command.add_argument("--bootstrap")
        if name == "run":
            command.add_argument("--show", action="store_true")
            command.add_argument("--all", action="store_true")
            command.add_argument("--validation", choices=("relaxed", "strict"), default="relaxed")
    options = parser.parse_args()
    return 1 if options.function(options) else 0


if __name__ == "__main__":
    sys.exit(main())
