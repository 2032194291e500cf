"""Transactions: their states, the decisions that lead from one to the next, and their rows."""
