"""What a share partition is made of: pure values and state machines (KIP-932)."""
