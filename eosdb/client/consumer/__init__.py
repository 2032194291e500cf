"""The consumer: positions, fetching, and membership in a classic group.

Nouns. A *position* is the offset of the next record to return. A *cursor* has the position of one
assigned partition and the block fetched there. A *membership* is the state machine of a group's member
(decisions/0078); an *assignor* is run by the group's leader and may be another client's (decisions/0029).

The room promises: records of a partition are returned in order, each once for a position;
`read_committed` shows no record of an open or aborted transaction. Besides `seek`, a position moves only
past records that `poll` has returned or does not show, so a commit never covers an unread record. A topic
that is deleted and recreated is noticed by its id, and read from its beginning. A member that lost its
partitions cannot commit for them.

To change: the thread that polls assigns and revokes; the thread of heartbeats only keeps the session.
Every request may be repeated (`requests`), and no step waits for others: `advance` says when to come
back. No call reaches the broker but through the transport.
"""
