"""The consumer: fetching, positions, and its membership in a group."""
