"""Without PySpark, as in the environments of ``make test-pythons``, what imports it is left out."""

from __future__ import annotations

from importlib.util import find_spec

NEED_PYSPARK = [
    "client/test_security_page.py",
    "spark/test_security_options.py",
    "spark/test_sink_options.py",
    "spark/test_source_metrics.py",
    "spark/test_stream_planner.py",
]

collect_ignore = NEED_PYSPARK if find_spec("pyspark") is None else []
