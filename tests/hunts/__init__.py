"""The gauntlet: actors, faults and one judge. `make relay move copies` runs its forerunners."""
