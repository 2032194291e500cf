"""Django's own transactions."""
