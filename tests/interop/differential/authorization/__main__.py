"""Compare a broker's answers under an authorizer with Apache Kafka's.

From the root of the repository::

    python -m tests.interop.differential.authorization run     Millstream against what is kept
    python -m tests.interop.differential.authorization record  keep what Apache Kafka 4.3 answers
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.broker_process import BrokerProcess
from tests.interop.differential.authorization import scenarios
from tests.interop.differential.authorization.settings import SETTINGS
from tests.interop.kafka_cluster import small_kafka_node


def main(command: str) -> int:
    """Run one command; 1 where answers differ."""
    with tempfile.TemporaryDirectory() as directory:
        if command == "record":
            with small_kafka_node(Path(directory), SETTINGS) as node:
                scenarios.save(scenarios.perform(node.bootstrap))
            return 0
        with BrokerProcess(Path(directory), SETTINGS) as broker:
            lines = scenarios.differences(scenarios.load(), scenarios.perform(broker.bootstrap))
    print("\n".join(lines))
    compared = len(scenarios.names()) - len(scenarios.EXPLAINED)
    print(f"{compared - len(lines)} of {compared} as Kafka answers")
    print(f"{len(scenarios.EXPLAINED)} more are not compared, see scenarios.EXPLAINED")
    return bool(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "run"))
