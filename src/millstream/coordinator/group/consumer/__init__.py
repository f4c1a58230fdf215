"""Groups of the consumer protocol of KIP-848, and classic members in them."""
