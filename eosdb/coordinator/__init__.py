"""The coordinator of transactions and groups, through which every write of the file passes.

Nouns. *Due work* is what time or a dead process has made necessary: time-outs, expirations, deliveries,
transactions that are decided but not complete. A *presence* is a kernel lock that shows that a member or
an owner is alive (decisions/0034). The *coordinator epoch* numbers the database objects that were elected
to complete transactions. A *life* is the time of a file from one restore to the next (decisions/0094).

`TransactionCoordinator.write` promises that due work is done and committed before the request sees the
file, so no request meets an expired session or transaction. A decided transaction is completed by some
process, whichever dies (decisions/0021). `foresight` shows readers what the next write will do, by the
same functions (decisions/0076).

`projection.apply` folds each event, for this room and for `log`; live path and replay share it.

To change: work that becomes due at a time needs that time in `_BOUNDS`, or no write looks for it. Rights
are checked inside the unit of the request. Only due work and housekeeping may write past `write`.
"""
