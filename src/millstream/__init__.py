"""Millstream: a commit log that speaks the Apache Kafka protocol, and a data pipeline on Spark."""

__version__ = "0.1.0"
