"""The log messages of eosdb: their catalog, and the code that logs them."""
