"""The processes a benchmark runs beside each other: Apache Kafka, Millstream, the raw limits."""
