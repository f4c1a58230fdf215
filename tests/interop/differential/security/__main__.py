"""Compare what a broker answers about security with Apache Kafka.

From the root of the repository::

    python -m tests.interop.differential.security run [--set open] [--api CreateAcls]
        send the scenarios to Millstream and print every field that is not as Kafka's; --show prints
        the answers too, --all also the differences that allowed.py explains
    python -m tests.interop.differential.security record [--set open] [--api CreateAcls]
        send them to Apache Kafka 4.3 and keep its answers
    python -m tests.interop.differential.security count
        print how many scenarios there are of each kind
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.interop.differential import recorded, runner
from tests.interop.differential.allowed import unexplained
from tests.interop.differential.scenario import Scenario
from tests.interop.differential.security.session import SecuredSession
from tests.interop.differential.security.sets import SETS, ScenarioSet
from tests.interop.differential.security.site import kafka_site, millstream_site
from tests.interop.kafka_cluster import kafka_version


def _chosen(options: argparse.Namespace, wanted: ScenarioSet) -> list[Scenario]:
    return [
        each
        for each in wanted.scenarios()
        if each.api in (options.api or (each.api,)) and (options.scenario or "") in str(each)
    ]


def _run(options: argparse.Namespace, wanted: ScenarioSet) -> int:
    chosen = _chosen(options, wanted)
    if not chosen:
        return 0
    different = 0
    meant: Counter[str] = Counter()
    with (
        tempfile.TemporaryDirectory() as directory,
        millstream_site(Path(directory), wanted.settings) as site,
    ):
        runner.prepare(SecuredSession(site))
        for scenario in chosen:
            outcome = runner.perform(scenario, SecuredSession(site))
            expected = recorded.load(scenario.api, wanted.answers).get(scenario.name)
            lines = ["nothing recorded"]
            if expected is not None:
                lines = runner.compare(outcome, expected)
            left = unexplained(str(scenario), lines)
            meant[scenario.api] += len(lines) > len(left)
            lines = lines if options.all else left
            different += bool(lines)
            if lines:
                print(f"{scenario}\n  " + "\n  ".join(lines))
            if options.show:
                for step, answer in outcome.steps:
                    print(f"  {step}: {answer}")
    print(f"{wanted.name}: {len(chosen) - different} of {len(chosen)} scenarios answer as Kafka,")
    print(f"{sum(meant.values())} of them but for differences that are meant: {dict(+meant)}")
    return different


def _record(options: argparse.Namespace, wanted: ScenarioSet) -> int:
    chosen = _chosen(options, wanted)
    if not chosen:
        return 0
    recorded.save_settings(kafka_version(), wanted.settings, wanted.answers)
    with (
        tempfile.TemporaryDirectory() as directory,
        kafka_site(Path(directory), wanted.settings) as site,
    ):
        return runner.record(
            chosen,
            lambda: SecuredSession(site),
            is_complete=options.scenario is None,
            directory=wanted.answers,
        )


def _count(options: argparse.Namespace, wanted: ScenarioSet) -> int:
    kinds = Counter(each.api for each in _chosen(options, wanted))
    for name, count in kinds.items():
        print(f"{name}: {count}")
    print(f"{wanted.name}: {kinds.total()} scenarios")
    return 0


def main() -> int:
    """Read the command line and do what it says."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.interop.differential.security",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True)
    for name, function in (("run", _run), ("record", _record), ("count", _count)):
        command = commands.add_parser(name)
        command.set_defaults(function=function)
        command.add_argument("--set", choices=SETS)
        command.add_argument("--api", action="append", help="may be given several times")
        command.add_argument("--scenario")
        if name == "run":
            command.add_argument("--show", action="store_true")
            command.add_argument("--all", action="store_true")
    options = parser.parse_args()
    sets = [SETS[options.set]] if options.set else list(SETS.values())
    return 1 if sum(options.function(options, each) for each in sets) else 0


if __name__ == "__main__":
    sys.exit(main())
