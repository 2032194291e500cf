"""Strangers at the server's door: frames of every kind, good, bad and worse, and what must hold after each.

`python -m tests.trials.fuzz` hunts for longer (`make fuzz`); tests/wire/test_fuzz.py is the short form.
"""
