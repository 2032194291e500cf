"""The kinds of events, and how the journal writes and reads them."""
