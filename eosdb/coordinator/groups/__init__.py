"""Consumer groups of both protocols, and their offsets.

Nouns. A *group* is classic (`Group`: its members choose the assignment) or of KIP-848 (`ConsumerGroup`:
the coordinator assigns). Both have `Member` values of one form (decisions/0063). A *generation*, or
*group epoch*, numbers a set of members. A *session* is a member's lease: a row that no event records
(decisions/0009). A *pending offset* belongs to an open transaction.

The room promises: decisions are pure functions from a group to the next group, or an error, and no
request blocks (`decisions`, `consumer_decisions`, `migration`, `departures`). In a KIP-848 group a
partition goes to another member only after its owner has confirmed or was removed. Allowed to commit: a
member in its epoch; anybody while the group is empty; in a transaction, a client without a member id.

To change: a rule is a row of `tests/coordinator/groups/table.py` (classic: `classic_table.py`). `rows`
loads a group, and records the difference of two values; do not write the tables `groups` and
`group_sessions` elsewhere. Topics are numbers in KIP-848 groups, since a recreated topic is another one;
they are names in classic groups.
"""
