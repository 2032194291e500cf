"""An order service: every order is a row of a table and a record for other programs, in one commit.

    uvicorn --app-dir examples fastapi_service:app --port 8000 --workers 2

A client that got no answer repeats its request: the order's id is its idempotency key, so it is stored
once. Needs `pip install --group examples` in a checkout; docs/web.md says more.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import JSONResponse
from sqlalchemy import Connection, text

import eosdb.aio

FILE = "shop.db"
WAIT_MS = 5_000
"""How long a request waits for the others' blocks before it is answered with 503."""


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """One database for each worker process."""
    config = eosdb.BrokerConfig(lock_timeout_ms=WAIT_MS)
    async with eosdb.aio.connect(FILE, config=config) as db:
        await db.admin.create_topic("orders", partitions=3, exist_ok=True)
        async with db.begin() as tx:
            await tx.run(create)
        app.state.db = db
        yield


app = FastAPI(lifespan=lifespan)


def create(connection: Connection) -> None:
    connection.execute(
        text("CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY, what TEXT, pieces INT)")
    )


def insert(connection: Connection, order: dict[str, Any]) -> None:
    connection.execute(text("INSERT INTO orders VALUES (:id, :what, :pieces)"), order)


@app.put("/orders/{order_id}")
async def put(request: Request, order_id: str, what: str, pieces: int = 1) -> dict[str, Any]:
    """Store an order, once; when this has been answered with 200, it is on the disk."""
    async with request.app.state.db.begin() as tx:
        stored = await tx.publish(
            "orders", f"{pieces} {what}", key=order_id, idempotency_key=order_id
        )
        if not stored.duplicate:
            await tx.run(insert, {"id": order_id, "what": what, "pieces": pieces})
        if pieces < 1:
            raise HTTPException(422, "an order has at least one piece")  # Undoes both.
    return {"partition": stored.partition, "offset": stored.offset}


@app.get("/orders/{order_id}")
async def get(request: Request, order_id: str) -> dict[str, Any]:
    """Reading waits for nobody."""
    query = "SELECT what, pieces FROM orders WHERE id = ?"
    for what, pieces in (await request.app.state.db.query(query, (order_id,))).rows:
        return {"what": what, "pieces": pieces}
    raise HTTPException(404, f"no order {order_id}")


@app.exception_handler(eosdb.DatabaseLockedError)
def busy(request: Request, error: Exception) -> JSONResponse:
    """Nothing was written; the client may try again."""
    return JSONResponse({"detail": str(error)}, 503, {"Retry-After": "1"})
