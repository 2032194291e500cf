"""Commands for operators: the file as a whole, access control, metrics, benchmarks."""
