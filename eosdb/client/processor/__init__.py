"""The loop that consumes, processes and produces exactly once, with retries and dead letters.

Nouns. The *handler* is the user's function. An *attempt* is a record in processing. A
`ProcessingTransaction` has the results and offsets of several records: a `ProducerTransaction` is
Kafka's, a `UnitTransaction` is a unit of the file with the user's tables (decisions/0040). *Progress*
says which records of a partition are complete; a *lane* is the records of one key, in order
(decisions/0092).

The room promises: the results of a record and its offset are committed together or not at all. A failed
record leaves the earlier ones of its transaction alone (decisions/0010). A postponed or dead record is
sent in the transaction that commits its offset (decisions/0091). A commit may stand above unfinished
records only if its metadata names them, also after a move of the partition (decisions/0093).

To change: threads run handlers only; everything else happens in the processor's thread. After an error of
the transaction call `mend`: it rolls back and reads the committed offsets again. Never hold the file's
write lock over a poll, a pause or a log line.
"""
