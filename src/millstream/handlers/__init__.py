"""One module per API key; `routes` says which."""
