"""How the leader of a group divides partitions: range, round-robin, sticky, cooperative-sticky."""
