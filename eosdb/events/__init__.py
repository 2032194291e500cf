"""What can happen: the kinds of events, and how the journal writes and reads them."""
