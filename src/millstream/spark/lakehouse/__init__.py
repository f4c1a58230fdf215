"""Topics land in tables here: Delta, Iceberg and Parquet, each record once, and provably so.

Read in this order: `ledger` (the offsets of a load in its table), `table` (the interface of a kind
of table), `landing` (how a task writes its offsets to data files), `load` (the loop).
"""
