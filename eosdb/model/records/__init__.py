"""Records on their way into and out of a file: as columns, as bytes, and in which partition."""
