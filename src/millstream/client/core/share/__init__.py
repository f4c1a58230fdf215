"""The share consumer (KIP-932): membership, share sessions, acquired records, acknowledgements."""
