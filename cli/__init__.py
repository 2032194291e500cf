"""The command line: parse, call, print. Commands are grouped by noun, one module each."""
