"""What eosdb costs beside raw sqlite3 and beside its peers, always in one run. See README.md."""
