"""The command `millstream`: one module per command group."""
