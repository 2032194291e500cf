"""The kinds of events, and their form in the journal.

An *event* is a named tuple of `kinds`: what has happened, never what somebody wants. It has everything
that its projection needs, because at replay the records may be gone (decisions/0001). Its first fields
are *columns* of the journal; the others are its *detail*, a JSON array in the order of the fields
(decisions/0096). A `Form` converts a type to JSON and back.

`encoding` promises: a row gives its event without any earlier one. A row whose values do not fit the
types of its class is a KeyError, TypeError or ValueError. The view `journal` names the values, by SQL
that is made from the same classes.

To change: a new kind is a class and its place in `Event`, and a projection in `log` or `coordinator`. A
new field comes last, with a default for the events of earlier schemas. Do not rename, reorder or retype a
field once a schema is released: files have its values by place. `docs/internals/format.md` lists both.
"""
