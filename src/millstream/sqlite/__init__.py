"""The metadata store of a broker on its own: one SQLite file."""
