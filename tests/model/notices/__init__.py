"""What eosdb says through `logging`."""
