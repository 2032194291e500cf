"""Commands on topics and records: create, write, read, load, draw."""
