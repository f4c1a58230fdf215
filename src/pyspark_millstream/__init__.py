"""Where Spark looks for a data source named `millstream`.

Spark imports every top-level module whose name starts with ``pyspark_`` and takes its
``DefaultSource``, so `format("millstream")` is there without `register()`.
"""

from __future__ import annotations

from millstream.spark.source import MillstreamDataSource

__all__ = ["DefaultSource"]

DefaultSource = MillstreamDataSource
