"""What the client knows of the protocol, without sockets, clocks, threads or randomness.

`loop.ClientLoop` is everything it asks of the world. Coroutines here await
:class:`millstream.model.deferred.Deferred` and are driven by ``spawn``, so the same code runs
behind the blocking API (`client.thread_loop`), under asyncio (`client.aio`) and on a scripted
loop with virtual time.

Bottom up: `loop`, `waiting` · `connection` (one broker) · `network` (all of them) · `metadata` ·
`producer/`, `consumer/`, `admin/`.
"""
