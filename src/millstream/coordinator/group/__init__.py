"""Groups of the classic protocol and the offsets they commit (KIP-62, KIP-345, KIP-394)."""
