"""Commands of operators: the file as a whole, access, figures, measurements."""
