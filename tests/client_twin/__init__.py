"""A world for the client's core: a loop with virtual time, and a cluster of scripted brokers.

`loop.TwinLoop` is deterministic: the same seed gives the same run. `cluster.TwinCluster` serves
topics from memory, keeps producers' sequences as a broker does, and can be told to delay, to cut,
to refuse and to move leaders.
"""

from tests.client_twin.cluster import TwinBroker, TwinCluster, TwinPartition, TwinTopic
from tests.client_twin.loop import Network as TwinWire
from tests.client_twin.loop import TwinLoop

__all__ = [
    "TwinBroker",
    "TwinCluster",
    "TwinLoop",
    "TwinPartition",
    "TwinTopic",
    "TwinWire",
]
