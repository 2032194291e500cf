"""The producer: from `send` to an acknowledged batch, and transactions."""
