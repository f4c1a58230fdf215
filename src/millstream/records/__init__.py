"""Record batches: view, build, validate, compress, and turn into columns."""
