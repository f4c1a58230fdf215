"""Settings: typed, immutable, under Kafka's own names."""
