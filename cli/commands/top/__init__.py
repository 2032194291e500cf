"""`eosdb top`: a reading of the file, its tables, the screen, the terminal."""
