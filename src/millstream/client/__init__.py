"""A blocking client of any Kafka-protocol broker, for the command line and for Spark.

`cluster.Cluster` is where to start: it knows brokers and leaders and keeps a connection to each
broker that is used. The other modules are functions and small classes over it, one per subject:
`topics`, `configs`, `log_dirs`, `groups`, `offsets`, `fetch`, `produce`. What a request needs on
the wire is sans-IO (`conversation`); `connection` alone touches a socket. Nothing here imports
numpy or pyarrow, and nothing starts a thread: a client is used by one thread at a time.
"""
