"""Bytes to messages and back, without input or output."""
