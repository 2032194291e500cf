"""How a unit of events is written: one writer at a time, and many units in one commit."""
