"""Where a model's bytes lie when they are too large for a row of the journal."""
