"""Who may write what: producer ids, transactions, markers, group offsets."""
