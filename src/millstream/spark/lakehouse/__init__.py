"""Topics land in tables here: Delta, Iceberg and Parquet, each record once, and provably so.

Read in this order: `ledger` (what a table remembers of a load), `table` (what a kind of table must
be able to do), `landing` (how a task writes its offsets to data files), `load` (the loop).
"""
