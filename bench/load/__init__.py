"""Load generators. Each runs as a process of its own and reports in one line of JSON."""
