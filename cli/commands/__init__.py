"""The commands, one subject each. `cli/main.py` lists them by name."""
