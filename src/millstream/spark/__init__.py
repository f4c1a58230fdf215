"""Topics as DataFrames: the data source that Spark finds as `millstream`."""
