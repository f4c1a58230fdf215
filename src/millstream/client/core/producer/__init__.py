"""The producer's core: records into batches, batches to leaders, each once and in order.

`accumulator` (records wait in batches) · `partitioner` (which partition) · `sequences` (what makes
a batch recognisable when it comes again) · `sender` (who is asked when) · `answers` (what an
answer means).
"""
