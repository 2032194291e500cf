"""The producer: from `send` to a batch that is acknowledged, and the transaction round it."""
