"""Schemas of records: where they are registered, how a record names its own, and what it says.

Pure: ``schema`` (values and errors), ``framing`` (the wire format), ``subjects`` (names),
``known`` (what is kept of answers), ``complete`` (a schema with what it imports), ``settings``.
Edges: ``http`` and ``file`` (registries), ``protoc`` (the compiler of ``.proto`` texts).
``registry.open_registry`` is where to begin; ``values.ValueDecoder`` reads single records.
"""
