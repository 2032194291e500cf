"""An open SQLite file: units write rows, snapshots read them, and the journal says what happened.

Nouns. A *unit* is everything between BEGIN IMMEDIATE and COMMIT (`writing`). An *event* is a row of the
journal; `Unit.record` appends it and folds it into the materialized tables (decisions/0001). A *snapshot*
is a read-only connection on one state of the file (`readers`). The *baseline* is a second copy of the
tables, as of an earlier event, from which replay starts (decisions/0022). The *writer mutex* is a lock
between processes on `FILE-lock` (decisions/0002).

`Store` promises: `write` returns after the commit, synced as `durability` says. An error of the file says
by its `outcome` whether the request may be stored all the same. After a failed fsync nothing is committed
until the WAL is written again (decisions/0017). No signal leaves a lock held (decisions/0018), a forked
child has no connection (decisions/0019), and no unit writes to a file whose name leads elsewhere
(decisions/0056).

To change: statements and facts about a file are in `queries`, `journal` and `counters`; the content of a
file is in `schema`, and the operating system in `file`. Do not BEGIN, COMMIT or checkpoint elsewhere, do
not keep a connection beyond its unit or snapshot, and do not move the calls into C at the start of a
`finally`. A change here must pass `make chaos`.
"""
