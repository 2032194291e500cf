"""The log messages of eosdb: their catalog, and how one is logged."""
