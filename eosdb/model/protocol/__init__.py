"""External formats: the opaque bytes of consumer groups, SCRAM credentials, Prometheus' text."""
