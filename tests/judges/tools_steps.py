"""The lines of Kafka's command-line tools that the judge `tools` runs, in their order on one file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

TOOLS: Final = "org.apache.kafka.tools."
TOPICS: Final = TOOLS + "TopicCommand"
GROUPS: Final = TOOLS + "consumer.group.ConsumerGroupCommand"
TRANSACTIONS: Final = TOOLS + "TransactionsCommand"
ACLS: Final = TOOLS + "AclCommand"
CONFIGS: Final = "kafka.admin.ConfigCommand"
FEATURES: Final = TOOLS + "FeatureCommand"
FOLDERS: Final = TOOLS + "LogDirsCommand"
ELECTION: Final = TOOLS + "LeaderElectionCommand"
REASSIGN: Final = TOOLS + "reassign.ReassignPartitionsCommand"
QUORUM: Final = TOOLS + "MetadataQuorumCommand"
CLUSTER: Final = TOOLS + "ClusterTool"
OFFSETS: Final = TOOLS + "GetOffsetShell"
METRICS: Final = TOOLS + "ClientMetricsCommand"
TOKENS: Final = TOOLS + "DelegationTokenCommand"
PRODUCER: Final = TOOLS + "ConsoleProducer"
CONSUMER: Final = TOOLS + "consumer.ConsoleConsumer"
PERFORMANCE: Final = TOOLS + "ProducerPerformance"


@dataclass(frozen=True, slots=True)
class Step:
    """One command line. `{B}` in it stands for the broker's address, `{FOLDER}` for a folder of files."""

    program: str
    arguments: str
    given: str = ""
    is_sorted: bool = False
    """The tool's order of lines is that of a hash map."""
    is_silent: bool = False
    """What it prints are measurements."""


FETCHES: Final = TOOLS + "ConsumerPerformance"
OLDER: Final = {
    CONSUMER: ("--formatter-property", "--property"),
    PRODUCER: ("--reader-property", "--property"),
    PERFORMANCE: ("--bootstrap-server ", "--producer-props bootstrap.servers="),
    FETCHES: ("--num-records", "--messages"),
}
"""Options by the names that tools before 4.2 have for them."""
LINES: Final = "".join(f"k{it % 3}:line {it}\n" for it in range(10))
PRINTED: Final = (
    "--formatter-property print.key=true --formatter-property print.partition=true "
    "--formatter-property print.offset=true"
)
PAIRS: Final = "--reader-property parse.key=true --reader-property key.separator=:"
AT: Final = "--bootstrap-server {B}"

USER: Final = f"{AT} --alter --entity-type users --entity-name alice"
BROKER: Final = f"{AT} --alter --entity-type brokers --entity-name 1"

CONFIGURED: Final = (
    Step(CONFIGS, f"{AT} --describe --all --entity-type topics --entity-name lines"),
    Step(
        CONFIGS, f"{AT} --alter --entity-type topics --entity-name lines --delete-config nonsense"
    ),
    Step(
        CONFIGS, f"{AT} --alter --entity-type topics --entity-name none --add-config retention.ms=1"
    ),
    Step(CONFIGS, f"{AT} --describe --entity-type brokers --entity-name 1"),
    Step(CONFIGS, f"{AT} --describe --entity-type brokers --entity-default"),
    Step(CONFIGS, f"{AT} --describe --entity-type brokers --entity-name 7"),
    Step(CONFIGS, f"{BROKER} --add-config num.partitions=2"),
    Step(CONFIGS, f"{BROKER} --delete-config log.cleaner.threads"),
    Step(CONFIGS, f"{BROKER} --add-config log.cleaner.threads=2"),
    Step(CONFIGS, f"{USER} --add-config SCRAM-SHA-256=[iterations=8192,password=secret]"),
    Step(CONFIGS, f"{AT} --describe --entity-type users"),
    Step(CONFIGS, f"{AT} --describe --entity-type users --entity-name alice"),
    Step(CONFIGS, f"{USER} --delete-config SCRAM-SHA-256"),
    Step(CONFIGS, f"{USER} --delete-config SCRAM-SHA-256"),
    Step(CONFIGS, f"{USER} --add-config producer_byte_rate=1024"),
    Step(CONFIGS, f"{USER} --delete-config producer_byte_rate"),
    Step(CONFIGS, f"{AT} --describe --entity-type users"),
    Step(CONFIGS, f"{AT} --describe --entity-type clients"),
    Step(CONFIGS, f"{AT} --describe --entity-type ips"),
    Step(CONFIGS, f"{AT} --describe --entity-type client-metrics"),
    Step(
        CONFIGS,
        f"{AT} --alter --entity-type broker-loggers --entity-name 1 --add-config nothing=INFO",
    ),
    Step(CONFIGS, f"{AT} --describe --entity-type groups", is_sorted=True),
    Step(
        CONFIGS,
        f"{AT} --alter --entity-type groups --entity-name kept "
        "--add-config consumer.session.timeout.ms=50000",
    ),
    Step(CONFIGS, f"{AT} --describe --entity-type groups --entity-name kept"),
    Step(
        CONFIGS,
        f"{AT} --alter --entity-type groups --entity-name kept "
        "--add-config consumer.session.timeout.ms=1",
    ),
    Step(
        CONFIGS,
        f"{AT} --alter --entity-type groups --entity-name kept "
        "--delete-config consumer.session.timeout.ms",
    ),
    Step(METRICS, f"{AT} --list"),
    Step(METRICS, f"{AT} --alter --name m --metrics org.apache --interval 1000"),
    Step(METRICS, f"{AT} --delete --name m"),
    Step(FEATURES, f"{AT} describe"),
    Step(FEATURES, f"{AT} upgrade --feature transaction.version=2"),
    Step(FEATURES, f"{AT} upgrade --feature transaction.version=9"),
    Step(FEATURES, f"{AT} upgrade --feature nonsense=1"),
    Step(FEATURES, f"{AT} downgrade --feature transaction.version=1 --dry-run"),
    Step(FEATURES, f"{AT} upgrade --release-version 4.1-IV1 --dry-run"),
)
"""Settings of everything that has some."""

STAY: Final = "--reassignment-json-file {FOLDER}/stay.json"
PLACED: Final = (
    Step(ELECTION, f"{AT} --election-type preferred --all-topic-partitions"),
    Step(ELECTION, f"{AT} --election-type preferred --topic lines --partition 0"),
    Step(ELECTION, f"{AT} --election-type unclean --topic lines --partition 0"),
    Step(ELECTION, f"{AT} --election-type preferred --topic none --partition 0"),
    Step(ELECTION, f"{AT} --election-type preferred --path-to-json-file {{FOLDER}}/election.json"),
    Step(REASSIGN, f"{AT} --list"),
    Step(
        REASSIGN,
        f"{AT} --generate --topics-to-move-json-file {{FOLDER}}/topics.json --broker-list 1",
    ),
    Step(REASSIGN, f"{AT} --execute {STAY}"),
    Step(REASSIGN, f"{AT} --verify {STAY}"),
    Step(REASSIGN, f"{AT} --cancel {STAY}"),
    Step(REASSIGN, f"{AT} --execute --reassignment-json-file {{FOLDER}}/move.json"),
    Step(REASSIGN, f"{AT} --execute {STAY} --throttle 1000"),
    Step(REASSIGN, f"{AT} --verify {STAY}"),
    Step(FOLDERS, f"{AT} --describe --topic-list lines"),
    Step(FOLDERS, f"{AT} --describe --broker-list 9"),
    Step(QUORUM, f"{AT} describe --status"),
    Step(QUORUM, f"{AT} describe --replication"),
    Step(QUORUM, f"{AT} add-controller", is_silent=True),
    Step(
        QUORUM,
        f"{AT} remove-controller --controller-id 9 --controller-directory-id "
        "AAAAAAAAAAAAAAAAAAAAAQ",
    ),
)
"""What goes where, of which there is one."""

LOOKED_AT: Final = (
    Step(TOPICS, f"{AT} --describe --exclude-internal"),
    Step(TOPICS, f"{AT} --describe --exclude-internal --partition-size-limit-per-response 1"),
    Step(TOPICS, f"{AT} --describe --unavailable-partitions"),
    Step(TOPICS, f"{AT} --describe --under-replicated-partitions"),
    Step(TOPICS, f"{AT} --create --topic placed --replica-assignment 1,1"),
    Step(TOPICS, f"{AT} --create --topic misplaced --replica-assignment 1,2"),
    Step(TOPICS, f"{AT} --delete --topic placed --if-exists"),
    Step(OFFSETS, f"{AT} --topic li.*"),
    Step(OFFSETS, f"{AT} --topic-partitions lines:0 --time max-timestamp"),
    Step(OFFSETS, f"{AT} --topic-partitions lines:0 --time -4"),
    Step(OFFSETS, f"{AT} --topic-partitions lines:0 --time latest-tiered"),
    Step(OFFSETS, f"{AT} --topic-partitions lines:0 --time 1"),
    Step(OFFSETS, f"{AT} --topic-partitions none:0"),
    Step(GROUPS, f"{AT} --reset-offsets --group later --topic lines --to-latest --execute"),
    Step(
        GROUPS,
        f"{AT} --reset-offsets --group later --topic lines:0 --to-offset 6 --export --dry-run",
    ),
    Step(GROUPS, f"{AT} --reset-offsets --group later --topic none --to-latest --execute"),
    Step(GROUPS, f"{AT} --describe --all-groups --offsets"),
    Step(GROUPS, f"{AT} --describe --group later --members --verbose"),
    Step(GROUPS, f"{AT} --list --type classic", is_sorted=True),
    Step(GROUPS, f"{AT} --list --type consumer", is_sorted=True),
    Step(GROUPS, f"{AT} --list --type", is_sorted=True),
    Step(GROUPS, f"{AT} --list --state stable,empty", is_sorted=True),
    Step(GROUPS, f"{AT} --delete-offsets --group later --topic none"),
    Step(GROUPS, f"{AT} --delete --group later"),
    Step(TOOLS + "GroupsCommand", f"{AT} --list --consumer", is_sorted=True),
    Step(TOOLS + "GroupsCommand", f"{AT} --list --group-type share", is_sorted=True),
    Step(TOOLS + "consumer.group.ShareGroupCommand", f"{AT} --list"),
    Step(TOOLS + "consumer.group.ShareGroupCommand", f"{AT} --describe --group s"),
    Step(TOOLS + "streams.StreamsGroupCommand", f"{AT} --list"),
    Step(TOOLS + "streams.StreamsGroupCommand", f"{AT} --describe --group s"),
    Step(TRANSACTIONS, f"{AT} list --duration-filter 0"),
    Step(TRANSACTIONS, f"{AT} list --transactional-id-pattern p.*"),
    Step(TRANSACTIONS, f"{AT} list --transactional-id-pattern q("),
    Step(TRANSACTIONS, f"{AT} find-hanging --broker-id 1"),
    Step(TRANSACTIONS, f"{AT} abort --topic lines --partition 0 --start-offset 4"),
    Step(TOOLS + "DeleteRecordsCommand", f"{AT} --offset-json-file {{FOLDER}}/beyond.json"),
    Step(
        ACLS,
        f"{AT} --add --allow-principal User:alice --producer --idempotent "
        "--transactional-id t --topic orders",
        is_sorted=True,
    ),
    Step(ACLS, f"{AT} --add --deny-principal User:carol --operation Delete --cluster"),
    Step(
        ACLS,
        f"{AT} --add --allow-principal User:dave --operation Read --topic or "
        "--resource-pattern-type prefixed",
    ),
    Step(ACLS, f"{AT} --list --topic orders --resource-pattern-type match", is_sorted=True),
    Step(ACLS, f"{AT} --list --principal User:alice", is_sorted=True),
    Step(ACLS, f"{AT} --remove --force --cluster"),
    Step(ACLS, f"{AT} --remove --force --transactional-id t"),
    Step(ACLS, f"{AT} --remove --force --topic or --resource-pattern-type any"),
    Step(ACLS, f"{AT} --remove --force --topic orders --resource-pattern-type any", is_sorted=True),
    Step(TOKENS, f"{AT} --describe --command-config {{FOLDER}}/nothing.properties"),
)
"""What operators look at, and mend."""

STEPS: Final = (
    Step(TOPICS, f"{AT} --create --topic orders --partitions 2 --replication-factor 1 "
                 "--config retention.ms=86400000"),
    Step(TOPICS, f"{AT} --create --topic orders"),
    Step(TOPICS, f"{AT} --create --topic orders --if-not-exists"),
    Step(TOPICS, f"{AT} --create --topic lines"),
    Step(TOPICS, f"{AT} --create --topic bad/name"),
    Step(TOPICS, f"{AT} --create --topic wide --replication-factor 3"),
    Step(TOPICS, f"{AT} --create --topic odd --config no.such=1"),
    Step(TOPICS, f"{AT} --list --exclude-internal"),
    Step(TOPICS, f"{AT} --describe --topic orders"),
    Step(TOPICS, f"{AT} --alter --topic orders --partitions 3"),
    Step(TOPICS, f"{AT} --alter --topic orders --partitions 1"),
    Step(TOPICS, f"{AT} --describe --topic orders"),
    Step(TOPICS, f"{AT} --describe --topic nothing"),
    Step(CONFIGS, f"{AT} --describe --entity-type topics --entity-name orders"),
    Step(CONFIGS, f"{AT} --alter --entity-type topics --entity-name orders "
                  "--add-config cleanup.policy=compact"),
    Step(CONFIGS, f"{AT} --describe --entity-type topics --entity-name orders"),
    Step(CONFIGS, f"{AT} --alter --entity-type topics --entity-name orders "
                  "--delete-config cleanup.policy,retention.ms"),
    Step(CONFIGS, f"{AT} --describe --entity-type topics --entity-name orders"),
    Step(PRODUCER, f"{AT} --topic lines {PAIRS}", LINES),
    Step(PRODUCER, f"{AT} --topic orders --compression-codec zstd {PAIRS}", LINES),
    Step(OFFSETS, f"{AT} --topic lines"),
    Step(OFFSETS, f"{AT} --topic-partitions lines:0 --time earliest"),
    Step(OFFSETS, f"{AT} --topic-partitions orders --time latest"),
    Step(CONSUMER, f"{AT} --topic lines --from-beginning --max-messages 10 {PRINTED}"),
    Step(CONSUMER, f"{AT} --topic lines --partition 0 --offset 7 --max-messages 3 {PRINTED}"),
    Step(CONSUMER, f"{AT} --topic lines --group readers --from-beginning --max-messages 4 {PRINTED}"),
    Step(CONSUMER, f"{AT} --topic lines --group readers --max-messages 2 {PRINTED}"),
    Step(GROUPS, f"{AT} --list", is_sorted=True),
    Step(GROUPS, f"{AT} --list --state", is_sorted=True),
    Step(GROUPS, f"{AT} --describe --group readers"),
    Step(GROUPS, f"{AT} --describe --group readers --state"),
    Step(GROUPS, f"{AT} --describe --group readers --members"),
    Step(GROUPS, f"{AT} --describe --group nobody"),
    Step(GROUPS, f"{AT} --reset-offsets --group readers --topic lines --to-earliest --dry-run"),
    Step(GROUPS, f"{AT} --reset-offsets --group readers --topic lines --shift-by -2 --execute"),
    Step(GROUPS, f"{AT} --describe --group readers --offsets"),
    Step(GROUPS, f"{AT} --delete-offsets --group readers --topic lines"),
    Step(GROUPS, f"{AT} --delete --group readers"),
    Step(GROUPS, f"{AT} --delete --group readers"),
    Step(GROUPS, f"{AT} --list", is_sorted=True),
    Step(TOOLS + "DeleteRecordsCommand", f"{AT} --offset-json-file {{FOLDER}}/delete.json"),
    Step(OFFSETS, f"{AT} --topic-partitions lines:0 --time earliest"),
    Step(CONSUMER, f"{AT} --topic lines --from-beginning --max-messages 6 {PRINTED}"),
    Step(PERFORMANCE, f"{AT} --topic lines --num-records 5000 --record-size 100 --throughput -1 "
                      "--transactional-id perf --transaction-duration-ms 600000", is_silent=True),
    Step(CONSUMER, f"{AT} --topic lines --isolation-level read_committed --partition 0 --offset 5 "
                   "--max-messages 5"),
    Step(FETCHES, f"{AT} --topic lines --num-records 5000", is_silent=True),
    Step(TRANSACTIONS, f"{AT} list"),
    Step(TRANSACTIONS, f"{AT} describe --transactional-id perf"),
    Step(TRANSACTIONS, f"{AT} forceTerminateTransaction --transactionalId perf"),
    Step(TRANSACTIONS, f"{AT} list"),
    Step(TRANSACTIONS, f"{AT} describe --transactional-id nobody"),
    Step(TRANSACTIONS, f"{AT} describe-producers --topic orders --partition 0"),
    Step(TRANSACTIONS, f"{AT} find-hanging --topic lines"),
    Step(ACLS, f"{AT} --list"),
    Step(ACLS, f"{AT} --add --allow-principal User:alice --producer --topic orders", is_sorted=True),
    Step(ACLS, f"{AT} --add --allow-principal User:bob --consumer --topic orders --group readers",
         is_sorted=True),
    Step(ACLS, f"{AT} --list --topic orders", is_sorted=True),
    Step(ACLS, f"{AT} --remove --force --allow-principal User:alice --producer --topic orders",
         is_sorted=True),
    Step(ACLS, f"{AT} --remove --force --topic orders", is_sorted=True),
    Step(ACLS, f"{AT} --remove --force --group readers", is_sorted=True),
    Step(ACLS, f"{AT} --list"),
    Step(TOOLS + "GroupsCommand", f"{AT} --list", is_sorted=True),
    Step(TOOLS + "BrokerApiVersionsCommand", AT, is_silent=True),
    Step(CLUSTER, f"cluster-id {AT}"),
    Step(CLUSTER, f"list-endpoints {AT}"),
    Step(CLUSTER, f"unregister {AT} --id 9"),
    *CONFIGURED,
    *PLACED,
    *LOOKED_AT,
    Step(TOPICS, f"{AT} --delete --topic orders"),
    Step(TOPICS, f"{AT} --delete --topic orders"),
    Step(TOPICS, f"{AT} --list --exclude-internal"),
)  # fmt: skip

FILES: Final = {
    "delete.json": '{"version": 1, "partitions": [{"topic": "lines", "partition": 0, "offset": 4}]}',
    "beyond.json": '{"version": 1, "partitions": [{"topic": "lines", "partition": 0, "offset": 99999}]}',
    "election.json": '{"partitions": [{"topic": "lines", "partition": 0}]}',
    "topics.json": '{"version": 1, "topics": [{"topic": "lines"}]}',
    "stay.json": '{"version": 1, "partitions": [{"topic": "lines", "partition": 0, "replicas": [1]}]}',
    "move.json": '{"version": 1, "partitions": [{"topic": "lines", "partition": 0, "replicas": [2]}]}',
    "nothing.properties": "",
}
"""In `{FOLDER}`."""
