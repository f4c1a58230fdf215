"""Where tables, their own files and the sink's journal are kept: directories and object stores."""
