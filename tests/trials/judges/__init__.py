"""Foreign programs that judge the server: `make judges` runs them. None is a test of the suite: they fetch
hundreds of megabytes and take many minutes."""
