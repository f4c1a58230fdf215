"""The consumer without sockets, clock and threads: groups, positions, fetching, commits."""
