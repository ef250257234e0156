"""Windows by key, over batches."""
