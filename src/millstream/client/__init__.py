"""A client for tools and for Spark."""
