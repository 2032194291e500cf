"""Programs that kill processes for long and compare the records; `make relay move copies` runs three."""
