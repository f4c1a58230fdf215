"""Nouns of the field: topics, offsets, producers, brokers, errors. Imports nothing else."""
