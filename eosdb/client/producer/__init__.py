"""The producer: from `send` to a stored batch, and transactions.

Nouns. A *batch* has unsent records of one partition, and a *future* for each (`accumulator`). A batch
gets its *sequence* when it is first sent. The *sender* drains batches, asks, and completes them; it has
no thread (decisions/0006): the *driver* runs it in the thread that waits, or in a background thread for
`linger_ms`. `TransactionManager` has the producer's identity, state and sequences.

The room promises, with idempotence (the default): a record is stored once, in the order of its partition,
or its future has an error. A batch that may be stored is never sent under another sequence. After an
error that leaves this in doubt, a transaction can only be aborted. A commit shares a turn with the last
records and offsets (decisions/0015). `send_many` makes columns, not objects (decisions/0024).

A transport answers, and nothing is in flight (decisions/0097): the head of `state` has the table of all
moves of a batch, and `Batches` there makes all but the first two. It makes no request; `sender` and
`transactions` do.

To change: hold the producer's lock. State that a signal must not tear changes in lines that call nothing
(decisions/0018). Callbacks of users run last, when all states are final.
"""
