"""What is done to logs beside serving them: loading, upkeep, compaction, moves."""
