"""What this broker knows of its cluster, and how it is told."""
