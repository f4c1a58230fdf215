"""Whole Arrow tables in and out. The modules here need numpy and pyarrow; the rest does not."""
