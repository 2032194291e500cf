"""Write units of events: there is one writer at a time, and a commit can contain many requests."""
