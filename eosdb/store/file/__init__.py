"""The database file and the operating system: connections, locks, names, forks, failures."""
