"""Two years in an hour: a shop on one file, with the clock moved, and a ledger outside of it."""
