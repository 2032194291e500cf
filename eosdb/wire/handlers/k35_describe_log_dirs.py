"""DescribeLogDirs: the only log directory, where the file is.

Version 2: flexible; 3: an error code for the whole answer; 4: the disk's size and free space (KIP-827);
5: whether the directory is cordoned, which it never is.
"""

from __future__ import annotations

from kafka.protocol.admin.cluster import DescribeLogDirsRequest

from eosdb.admin.tools import Tools
from eosdb.model.values import TopicPartition
from eosdb.wire.apis import Fields, Session, by_topic, partitions_of, serves


@serves(DescribeLogDirsRequest, 1, 5, failed=lambda _, error, __: {"error": error})
def describe_log_dirs(session: Session, request: DescribeLogDirsRequest, _: int) -> Fields:
    folder = Tools(session.admin).log_directory()
    tps = sorted(folder.sizes)
    if request.topics is not None:
        tps = sorted({tp for tp, _ in partitions_of(request.topics)} & folder.sizes.keys())

    def size(topic: str, index: int) -> Fields:
        return {
            "partition_index": index,
            "partition_size": folder.sizes[TopicPartition(topic, index)],
        }

    directory = {
        "like": folder,
        "log_dir": folder.path,
        "topics": [
            {"name": topic, "partitions": [size(topic, index) for index in indexes]}
            for topic, indexes in by_topic(tps).items()
        ],
    }
    return {"results": [directory]}
