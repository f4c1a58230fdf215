"""Checks the files of a log against each other, for `millstream log verify`; writes nothing."""
