"""The commands, one subject in each module. `cli/main.py` lists them by name."""
