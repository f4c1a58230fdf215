"""Reads topics from the files of a log directory, without recovery and while a broker uses it.

Nothing here writes, locks or maps a file. Changes by a broker meanwhile (roll, delete, compact) are
detected by listing again.
"""
