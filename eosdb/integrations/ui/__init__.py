"""The web page of `eosdb ui`: an open file in a browser of this machine, live, read-only by default.

Server-rendered pages (`pages`, `templates/`), one reading of the file per second for all browsers
(`watching`), changes that need a token, and the refusal of other origins (`server`).
Needs the extra `ui`.
"""
