"""The asyncio face of the client: the same core on the application's own event loop."""
