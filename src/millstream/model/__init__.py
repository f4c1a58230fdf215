"""The basic types: topics, offsets, producers, brokers, errors. Imports nothing else."""
