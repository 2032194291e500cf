"""One partition: its records, the producers that it knows, and the outcome of their transactions.

Nouns. A *partition* is a row with its offsets: log start ≤ last stable offset ≤ log end. A *producer
state entry* has a producer's epoch, its last five batches, and the first offset of its open transaction.
A *serial* is a sequence without the wrap at int32. A *marker* ends a transaction in a partition; the
*transaction index* lists what markers have aborted. A *waiting partition* has a negative number and holds
scheduled records (decisions/0098).

The room promises: a batch is stored once and in order, or refused (`producer_state` decides, `append`
stores). Offsets rise without gaps until compaction. Each record has a checksum, and sums prove which
records exist (decisions/0020, 0074). A reader gets each record of its range unaltered, or an error
(`reading`, decisions/0058).

To change: rules are pure, in `producer_state`; effects are in `append`; `projection` folds an event from
the event and the tables alone, without records, clock or settings. Whatever deletes records (`retention`,
`compaction`) records the event first, in the same unit or an earlier one. A column of `records` has a
recipe in docs/internals/architecture.md.
"""
