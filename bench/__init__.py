"""Benchmarks of Millstream beside Apache Kafka and the raw limits of the machine."""
