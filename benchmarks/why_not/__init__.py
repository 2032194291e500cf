"""eosdb beside what one may take instead: the same small work for each, what it costs, and what a kill
leaves.

    python -m benchmarks.why_not                       # speed, all that can be had here
    python -m benchmarks.why_not speed eosdb table     # two of them
    python -m benchmarks.why_not kills                 # the worker killed 20 times at random
    python -m benchmarks.why_not faults                # a zombie that comes back; an answer that is lost

Each kind of run takes less than four minutes on two cores when all systems are there; one that cannot
be had is named with the
reason. Into an environment of its own, for eosdb depends on none of it:

    pip install -e . litequeue procrastinate dbos redis nats-py 'psycopg[binary]' confluent-kafka

Servers are started and stopped by the run, in a folder that is deleted: `redis-server` and PostgreSQL's
`initdb` and `postgres`
(Debian: redis-server, postgresql), `nats-server` (`go install
github.com/nats-io/nats-server/v2@latest`) are looked for on the PATH.

Kafka is a broker of yours that EOSDB_BENCH_KAFKA=host:port names, one that nobody else uses, started with
`log.flush.interval.messages=1`, so that it syncs before it answers as the others do.
docs/why-not.md says what came out of it.
"""
