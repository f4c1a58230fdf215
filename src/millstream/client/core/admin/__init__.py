"""The administrator's core: one coroutine per operation on a cluster.

`outcome` (the result of calls) · `routing` (which broker, and retries) · one module per
subject: `topics`, `configs`, `cluster`, `groups`, `offsets`, `replicas`, `producers`, `access`.
"""
