"""The web page of `eosdb ui`: an open file in a browser of this machine, live, read-only by default.

The server renders pages (`pages`, `templates/`), reads the file once per second for all browsers, requires
a token for changes, and refuses other origins (`server`). Needs the extra `ui`.
"""
