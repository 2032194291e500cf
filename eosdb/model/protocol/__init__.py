"""External formats: the opaque bytes of consumer groups, SCRAM credentials, RE2 expressions."""
