"""The command `millstream`: one module per command group.

`main` is the entry point and imports nothing but `sys`: `serve` has a parser of its own, so that a
broker listens before typer and rich would even be loaded. Every other command goes through `app`.
"""
