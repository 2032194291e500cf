"""Carries out requests: one step for each of Kafka's, and three ways to write that Kafka does not have.

Nouns. A *request* is a value (`eosdb/model/requests.py`, decisions/0081). A *step* is the function that
answers its type, found in `core.STEPS`. A step that reads returns the answer; a step that writes checks
its arguments and returns a `Write`, before any lock is taken. A *turn* is several requests in one unit
(decisions/0079). `Core` has the parts of an open file.

`Broker` promises: a request is atomic (Produce: for each partition), and is as durable as the settings
say when `ask` returns. A transactional append needs no sync of its own (decisions/0004). Bad arguments
are Kafka's errors, and change nothing. `Fetch` returns all that is stored, markers and aborted data
included (decisions/0055); `FetchData` returns what a consumer sees.

Without counterpart in Kafka are `append_once` (`sink`) and the blocks of `db.begin()` and `join`
(`outbox`, decisions/0012, 0062).

To change: decorate a new step with `@answers` or `@prepares`, and add its `method_of` line in `broker`.
Rules belong below, in `log` and `coordinator`. `Write.apply` may run twice, and in another thread.
Clients never get at a unit or a connection: they have a transport.
"""
