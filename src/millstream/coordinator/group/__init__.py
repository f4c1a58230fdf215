"""Consumer groups: membership, rebalances, committed offsets. Pure."""
