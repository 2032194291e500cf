"""The transaction and group coordinator: producer ids, transactions, markers, groups and their offsets."""
