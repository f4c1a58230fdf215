"""SASL mechanisms, each side as a machine of challenges and responses (RFC 4422)."""
