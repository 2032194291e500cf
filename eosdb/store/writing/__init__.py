"""Write units: one writer at a time, and a commit that many requests share.

Nouns. A *request* is a function that gets a unit. A *part* of a unit can be undone alone. A *round* is
the unit of all requests that wait; the thread with the *lead* runs it (decisions/0016). A *turn* reserves
the writer for a block (decisions/0042). A *memo* caches rows from one unit to the next. An `Insertion`
and a `Table` hold the statements of a table.

There are three units. `Unit` is shared: `Writer` begins it, runs the requests, and commits. `HeldUnit`
stays open for the user's own SQL, on a connection with an authorizer. `_JoinedUnit` is inside a
transaction of the program, on its connection (decisions/0062).

A unit promises: `record` is the only way to change the state, and replay calls the same `apply`.
Positions of events rise by one. A statement sees all that was recorded before it, although rows are
written late and once (decisions/0025). A request that fails leaves nothing, also if the whole round has
to run again with savepoints: so a request may run twice, and must not keep what an earlier run returned.

To change: a memo must say which events of other connections it survives (decisions/0090), and must be
looked up again after each step. Only projections call `save` and write to materialized tables.
"""
