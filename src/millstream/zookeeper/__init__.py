"""The metadata store of a cluster: a real ZooKeeper, reached through kazoo."""
