"""The coordinators of groups that this broker runs, one for each partition of their topic."""
