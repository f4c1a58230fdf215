"""Pure decisions about topics and partitions: assignment, elections, states."""
