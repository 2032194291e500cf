"""Exactly-once checks that run against eosdb and against the test doubles Python users have today.

`double` says what a system under test must offer, the `*_double` modules offer it, the `*_checks`
modules ask, `catalog` puts the checks in order, and `sheet` runs them and writes
docs/internals/conformance.md.
"""
