"""docs/internals/format.md is true and enough: readers that were made from it alone list what eosdb lists.

`reader.py`, in Python's standard library, begins with the baseline and folds the events behind it;
`Reader.java` reads the tables as they are now. Java, because the driver of SQLite's that is installed for
the tests of Spark serves it, too: one source file, compiled and run in a second, nothing to download.
"""
