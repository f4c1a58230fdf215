"""The administrator's core: one coroutine per thing that can be asked of a cluster.

`outcome` (what every call returns) · `routing` (who is asked, and trying again) · one module per
subject: `topics`, `configs`, `cluster`, `groups`, `offsets`, `replicas`, `producers`, `access`.
"""
