"""What eosdb says through `logging`: the catalog of its notices, and how one is said."""
