"""A confluent-kafka program, unchanged beside an eosdb file, and what it becomes as a library call.

    python examples/confluent_port.py shop.db

Both turn readings in Fahrenheit into Celsius, exactly once: what was read, what was written and how far it
was read are committed together. The first talks to a Kafka broker, which `db.serve()` is for it; nothing in
it knows of eosdb. The second is the same program without a broker. Needs `pip install '.[serve,kafka]'`
in a checkout.
"""

from __future__ import annotations

import sys

from confluent_kafka import Consumer, Producer

import eosdb

SOURCE = "fahrenheit"


def celsius(value: bytes) -> bytes:
    return f"{(float(value) - 32) / 1.8:.1f}".encode()


def with_confluent(servers: str, sink: str) -> int:
    """The program as it was, with one more broker address. Returns how many records it has turned."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "weather",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    producer = Producer({"bootstrap.servers": servers, "transactional.id": "weather-1"})
    producer.init_transactions()
    consumer.subscribe([SOURCE])
    done, ended = 0, set[int | None]()
    while len(ended) < len(consumer.assignment()) or not ended:
        message = consumer.poll(1.0)
        if message is None:
            continue
        if message.error():  # the end of a partition
            ended.add(message.partition())
            continue
        producer.begin_transaction()
        producer.produce(sink, key=message.key(), value=celsius(message.value() or b""))
        producer.send_offsets_to_transaction(
            consumer.position(consumer.assignment()), consumer.consumer_group_metadata()
        )
        producer.commit_transaction()
        done += 1
    consumer.close()
    return done


def with_eosdb(db: eosdb.Database, sink: str) -> int:
    """The same in one call, which also retries, shares the work with other copies, and stops in order."""
    done = eosdb.process(
        db, SOURCE, lambda record: celsius(record.value), sink,
        group_id="weather-2", transactional_id="weather-2", until_idle_ms=200,
    )  # fmt: skip
    return done.processed


def main(path: str) -> None:
    with eosdb.connect(path) as db:
        for topic in (SOURCE, "celsius", "celsius-2"):
            db.admin.create_topic(topic, partitions=2, exist_ok=True)
        db.producer().send_many(SOURCE, [(f"station-{i % 7}", str(i)) for i in range(50)])
        with db.serve() as server:
            before = with_confluent(server.bootstrap_servers, "celsius")
        after = with_eosdb(db, "celsius-2")
        same = db.query(
            "SELECT count(DISTINCT topic), count(*) FROM committed_records WHERE topic LIKE 'celsius%' "
            "GROUP BY key, value HAVING count(*) = 2"
        )
        print(f"turned {before} and {after} records; {len(list(same.rows))} of them are the same")


if __name__ == "__main__":
    main(sys.argv[1])
