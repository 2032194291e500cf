"""Writing units of events: one writer at a time, and many units in one commit."""
