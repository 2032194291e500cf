"""`eosdb top`: it reads a file's figures, and shows them as tables on the terminal's screen."""
