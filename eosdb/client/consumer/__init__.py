"""The consumer: what it fetches, where it stands, and which group it is in."""
