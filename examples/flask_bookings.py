"""A Flask application with a database of its own gets an outbox, in the file it already has.

    python examples/flask_bookings.py old bookings.db       # the file as it was before eosdb
    eosdb init bookings.db --adopt --wal
    BOOKINGS_DB=bookings.db flask --app examples/flask_bookings run
    python examples/flask_bookings.py mail bookings.db      # beside it, in as many copies as you like

The application's tables stay as they are and where they are. A booking and the message about it are stored
in one commit; a request that is sent again, because its answer was lost, books nothing again; and each
booking is confirmed once.
"""

from __future__ import annotations

import json
import os
import sqlite3
import sys

from flask import Flask, Response, jsonify, request
from sqlalchemy import ForeignKey, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

import eosdb

OLD_SCHEMA = """
CREATE TABLE course (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, places INTEGER NOT NULL);
CREATE TABLE booking (
    id INTEGER PRIMARY KEY, course_id INTEGER NOT NULL REFERENCES course, guest TEXT NOT NULL
);
CREATE TABLE confirmation (booking_id INTEGER PRIMARY KEY REFERENCES booking, text TEXT NOT NULL);
INSERT INTO course VALUES (1, 'tango', 100), (2, 'swing', 5);
PRAGMA user_version = 12;
"""


class Base(DeclarativeBase):
    pass


class Course(Base):
    __tablename__ = "course"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]
    places: Mapped[int]


class Booking(Base):
    __tablename__ = "booking"
    id: Mapped[int] = mapped_column(primary_key=True)
    course_id: Mapped[int] = mapped_column(ForeignKey("course.id"))
    guest: Mapped[str]


class Confirmation(Base):
    __tablename__ = "confirmation"
    booking_id: Mapped[int] = mapped_column(ForeignKey("booking.id"), primary_key=True)
    text: Mapped[str]


def make_old_database(path: str) -> None:
    """What the application had before."""
    with sqlite3.connect(path) as connection:
        connection.executescript(OLD_SCHEMA)
    connection.close()


def connect(path: str) -> eosdb.Database:
    """Open the file; the first time, put eosdb's tables beside the application's."""
    db = eosdb.connect(path, adopt=True)
    db.admin.create_topic("bookings", partitions=3, exist_ok=True)
    return db


def create_app() -> Flask:
    app = Flask(__name__)
    db = connect(os.environ["BOOKINGS_DB"])

    @app.post("/bookings")
    def book() -> tuple[Response, int]:
        wish = request.get_json()
        with db.begin() as tx:
            # Its own key for each request, such as a form's: the same request again books nothing.
            sent = tx.publish(
                "bookings",
                key=wish["guest"],
                value=json.dumps(wish),
                idempotency_key=request.headers["Idempotency-Key"],
            )
            if sent.duplicate:
                return jsonify(booked=True), 200
            with Session(tx.connection, join_transaction_mode="create_savepoint") as session:
                course = session.scalars(select(Course).filter_by(name=wish["course"])).one()
                if course.places == 0:
                    raise SoldOutError  # Neither the message nor the booking is stored.
                course.places -= 1
                session.add(Booking(course_id=course.id, guest=wish["guest"]))
                session.commit()
        return jsonify(booked=True), 201

    @app.get("/bookings")
    def bookings() -> Response:
        with Session(db.engine) as session:
            return jsonify([booking.guest for booking in session.scalars(select(Booking))])

    @app.errorhandler(SoldOutError)
    def sold_out(_: SoldOutError) -> tuple[Response, int]:
        return jsonify(error="sold out"), 409

    return app


class SoldOutError(Exception):
    """The course has no places left."""


def confirm(record: eosdb.ConsumerRecord, tx: eosdb.UserTransaction) -> None:
    """Confirm a booking, in one commit with how far the bookings have been read."""
    wish = json.loads(record.value)
    with Session(tx.connection, join_transaction_mode="create_savepoint") as session:
        found = session.scalars(
            select(Booking)
            .join(Course)
            .filter_by(name=wish["course"])
            .where(Booking.guest == wish["guest"])
        ).one()
        session.add(Confirmation(booking_id=found.id, text=f"{wish['guest']}: {wish['course']}"))
        session.commit()


def send_mail(path: str) -> None:
    """Confirm what there is to confirm."""
    with connect(path) as db:
        eosdb.process(db, "bookings", confirm, group_id="mail", until_idle_ms=300)


if __name__ == "__main__":
    {"old": make_old_database, "mail": send_mail}[sys.argv[1]](sys.argv[2])
