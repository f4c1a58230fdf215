"""Topics read from the files of a log directory, without recovery and beside a broker at work.

Nothing here writes, locks or maps a file. What a broker does meanwhile (roll, delete, compact) is
seen by looking again.
"""
