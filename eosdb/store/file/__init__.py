"""The file as the operating system sees it: connections, locks, names, forks, failures."""
