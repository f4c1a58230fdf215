"""One module per API key; `routes` lists them."""
