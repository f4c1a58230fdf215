"""Sockets: listening, framing, ordered answers, sendfile."""
