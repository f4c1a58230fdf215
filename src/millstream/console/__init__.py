"""The web console: `millstream console`, for any cluster that speaks the Kafka protocol.

Needs the extra ``console`` (starlette, uvicorn).
"""
