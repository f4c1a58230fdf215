"""One module per API: its request and its response as declarative classes."""
