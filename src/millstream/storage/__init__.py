"""Files of a log directory: the only code that opens, writes and renames them."""
