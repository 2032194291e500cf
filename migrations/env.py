"""Alembic's environment.

eosdb hands over its own connection in `config.attributes["connection"]`, inside a unit that it
commits itself. A developer's `alembic -x db=FILE …` opens the named file.
"""

from alembic import context
from sqlalchemy import create_engine

connection = context.config.attributes.get("connection")
if connection is not None:
    context.configure(connection=connection)
    context.run_migrations()
else:
    path = context.get_x_argument(as_dictionary=True).get("db")
    if not path:
        raise SystemExit("name the file: alembic -x db=FILE …")
    with create_engine(f"sqlite:///{path}").begin() as opened:
        context.configure(connection=opened)
        context.run_migrations()
