"""What share partitions need of this broker: their persister, and the partitions led here."""
