"""The gauntlet: actors, faults and one judge. `make copies` runs a forerunner."""
