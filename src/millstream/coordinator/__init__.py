"""Pure coordinators: an operation returns a response and the records to persist; replay applies
them.
"""
