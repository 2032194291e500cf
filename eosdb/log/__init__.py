"""One partition's log: append and fetch, producer state, transaction index, retention."""
