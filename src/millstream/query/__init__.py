"""SQL over topics where they are: brokers or log directories, through DuckDB on Arrow batches.

The function for users is :func:`millstream.sql`, the command ``millstream sql``.
"""
