"""What can be found out about a cluster, a topic, a group or a log directory, as values.

Functions of this room ask a cluster through the client, or read the files of a log, and answer
frozen dataclasses. They print nothing and decide nothing about how a finding looks: `cli` writes
text and TSV from them, `console` writes JSON.
"""
