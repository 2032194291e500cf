"""Alembic's environment.

eosdb passes its own connection in `config.attributes["connection"]`, inside a unit that it commits
itself. A developer's `alembic -x db=FILE …` opens the named file. The version is stored in eosdb's own
table, so `alembic_version` is free for the migrations of the user's tables.
"""

from alembic import context
from sqlalchemy import Connection, create_engine

# decisions/0012: users may run Alembic on their own tables with the usual name, `alembic_version`.
VERSION_TABLE = "eosdb_alembic_version"


def run(connection: Connection) -> None:
    context.configure(connection=connection, version_table=VERSION_TABLE)
    context.run_migrations()


given = context.config.attributes.get("connection")
if given is not None:
    run(given)
else:
    path = context.get_x_argument(as_dictionary=True).get("db")
    if not path:
        raise SystemExit("name the file: alembic -x db=FILE …")
    with create_engine(f"sqlite:///{path}").begin() as opened:
        run(opened)
