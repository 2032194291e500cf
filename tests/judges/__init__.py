"""Foreign programs that judge the server: `python -m tests.judges` runs them, `make judges` does it with
everything at hand. None is a test of the suite: they fetch hundreds of megabytes and take many minutes."""
