"""The replicas that this broker keeps: leading, following, who waits for them, who fetches."""
