"""Commands that copy what is committed: snapshots in object storage, tables in a lakehouse."""
