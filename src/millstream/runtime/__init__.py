"""Joins the pure middle to the edges: partitions, waiters, coordinators, controller, metadata
cache.
"""
