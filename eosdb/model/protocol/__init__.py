"""Formats that others have defined: a consumer group's opaque bytes, SCRAM credentials."""
