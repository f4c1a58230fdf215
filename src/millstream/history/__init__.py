"""Histories of what clients saw, judged: what a log must not do, whatever fails.

==============  ===========================================================================
``checker``     the history and its anomalies, as values; the simulator uses it as well
``load``        producers, readers and an asker that write a history down, on our own client
``faults``      shell commands that break and mend a cluster while the load runs
``run``         all of it together, and the reading of everything in the end
``report``      what came out, as JSON and as text
==============  ===========================================================================

It knows nothing of the brokers but their protocol, so it serves any cluster that speaks it.
"""
