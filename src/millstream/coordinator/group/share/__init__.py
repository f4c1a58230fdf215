"""Share groups (KIP-932): members, their assignment, and which share partitions have state."""
