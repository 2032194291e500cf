"""Alembic's environment.

eosdb passes its own connection in `config.attributes["connection"]`, inside a unit that it commits
itself. A developer's `alembic -x db=FILE …` opens the named file. The version is stored in eosdb's own
table, so `alembic_version` is free for the migrations of the user's tables.
"""

from alembic import context
from sqlalchemy import Connection, create_engine, inspect, text

# decisions/0012: users may run Alembic on their own tables with the usual name, `alembic_version`.
VERSION_TABLE = "eosdb_alembic_version"


def run(connection: Connection) -> None:
    leave_the_common_name(connection)
    context.configure(connection=connection, version_table=VERSION_TABLE)
    context.run_migrations()


def leave_the_common_name(connection: Connection) -> None:
    """Move the version out of the table `alembic_version`, which files of schema 1 to 4 use."""
    tables = inspect(connection).get_table_names()
    if "journal" in tables and "alembic_version" in tables and VERSION_TABLE not in tables:
        connection.execute(
            text(f"CREATE TABLE {VERSION_TABLE} (version_num VARCHAR(32) NOT NULL PRIMARY KEY)")
        )
        connection.execute(text(f"INSERT INTO {VERSION_TABLE} SELECT * FROM alembic_version"))
        connection.execute(text("DROP TABLE alembic_version"))


given = context.config.attributes.get("connection")
if given is not None:
    run(given)
else:
    path = context.get_x_argument(as_dictionary=True).get("db")
    if not path:
        raise SystemExit("name the file: alembic -x db=FILE …")
    with create_engine(f"sqlite:///{path}").begin() as opened:
        run(opened)
