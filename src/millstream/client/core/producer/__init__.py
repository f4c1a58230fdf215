"""The producer's core: records into batches, batches to leaders, each once and in order.

`accumulator` (buffered batches) · `partitioner` · `sequences` (idempotence) · `sender` (requests to
leaders) · `answers` (results of batches).
"""
