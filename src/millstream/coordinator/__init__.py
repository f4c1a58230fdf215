"""Pure coordinators: an operation answers a response and the records to persist; replay applies
them.
"""
