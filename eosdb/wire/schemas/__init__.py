"""Schemas of messages that kafka-python does not have, in its form."""
