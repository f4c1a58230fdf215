"""A whole cluster in one process under a seeded loop: real brokers but for network, disk, time."""
