"""Where Spark looks for a data source named `millstream`."""
