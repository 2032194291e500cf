"""The commands, one subject each. `cli/registry.py` lists them by name."""
