"""The programs that the gauntlet runs: each works through one face until it is told to stop."""
