"""The broker: dispatch, composition, life cycle."""
