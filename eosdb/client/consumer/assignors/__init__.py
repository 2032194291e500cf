"""Assignors: how the partitions of a group are assigned to its members."""
