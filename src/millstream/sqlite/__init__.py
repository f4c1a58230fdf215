"""The metadata store of a standalone broker: one SQLite file."""
