"""The file as the operating system has it: connections, locks, names, forks, failures."""
