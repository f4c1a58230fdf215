"""The C library of ``native/``, for whoever calls it: where it is, and what it needs of Python."""
