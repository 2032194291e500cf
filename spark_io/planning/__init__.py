"""Plans a read: options, offsets, the cut through all files, the ranges of tasks."""
