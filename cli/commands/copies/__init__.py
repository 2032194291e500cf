"""Commands that copy committed data: snapshots in object storage, tables in a lakehouse."""
