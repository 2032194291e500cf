"""Transactional ids: their states, the decisions that lead from one to the next, and their rows.

Nouns. `TransactionMetadata` is the value of a transactional id: producer id and epoch, state, partitions,
groups. The *decision* (PrepareCommit, PrepareAbort) is final; the *completion* (CompleteCommit,
CompleteAbort) follows when all markers are written. To *fence* is to abort with a higher epoch. In
transaction version 2 every end raises the epoch (decisions/0007).

The room promises: a state follows only a state of `LEGAL_PREVIOUS`, and `transition` checks each change,
so that a bug raises instead of a wrong row. Epochs never fall; used-up epochs give a new producer id.
Producer ids are never given out twice, also after a restore (decisions/0094). Decision and markers share
one commit if they fit (decisions/0021).

To change: `decisions` are pure functions of a value and the request; each names the function of Kafka
that it follows. `rows` loads, records and writes markers. Do not build a `TransactionMetadata` by hand
where one exists: call `transition`.
"""
