"""Commands on topics and records: create, write, read, load, look at what is stored."""
