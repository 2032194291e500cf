"""The page of `eosdb ui`: an open file in a browser of this machine, live, read-only unless asked.

Server-rendered pages (`pages`, `templates/`), one look per second at the file for all browsers
(`watching`), changes behind a token (`changes`), and what keeps every other origin out (`guard`).
Needs the extra `ui`.
"""
