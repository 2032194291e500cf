"""Kafka's wire protocol in front of a file: frames, messages, record batches, and the server.

Nouns. An *API* is a key with versions; each has a file in `handlers` (decisions/0082). A *handler* turns
a message into the broker's requests, and returns the answer's fields. A *session* is the state of one
connection, with its principal. A *parked* request costs nothing while it waits: one thread watches for
all (decisions/0028). A *lease* is the memory that a connection holds.

The room promises: a request means the same in all versions, and its rules are the broker's; only formats
and error codes differ by version. A body is checked before it is decoded, and a limit applies before
memory is spent (decisions/0031). Addresses beyond loopback need TLS and a login (decisions/0030). A file
that is locked or full ends the connection and is never an answer (decisions/0054). Connections have a
thread each, and are answered in order (decisions/0087).

To change: raise a version in its handler's file, with its row in docs/wire.md and its request in
`tests/wire/every_api.py`. Internals of kafka-python, aiokafka and cramjam are used in `borrowed` alone
(decisions/0027). There is no SQL here. A change must pass ten minutes of `make fuzz`.
"""
