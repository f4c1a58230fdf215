"""The audit log of a running broker: its clock, its file and its topic."""
