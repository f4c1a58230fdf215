"""What this broker needs to know who its clients are: mechanisms by listener, and credentials."""
