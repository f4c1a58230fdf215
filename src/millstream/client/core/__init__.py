"""The client's protocol logic, without sockets, clocks, threads or randomness. `loop.ClientLoop` is
its interface to all of them. Coroutines here await :class:`millstream.model.deferred.Deferred` and
are driven by ``spawn``, so the same code runs behind the blocking API (`client.thread_loop`), under
asyncio (`client.aio`) and on a scripted loop with virtual time.

Bottom up: `loop`, `waiting` · `connection` (one broker) · `network` (all of them) · `metadata` ·
`producer/`, `consumer/`, `admin/`.
"""
