"""The request level of a cluster: messages of Kafka's protocol, with what one likes in them."""

from __future__ import annotations

from typing import Any

import confluent_kafka as ck
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.metadata.api_versions import ApiVersionsRequest
from kafka.protocol.producer.transaction import (
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
)

from tests.conformance.double import TOPIC, Identity
from tests.wire.peer import Address, Peer, batch, produce


class RawRequests:
    """Asks in the newest version that both sides know."""

    def __init__(self, host: str, port: int) -> None:
        self._peer = Peer(Address(host, port))
        known = self._peer.ask(ApiVersionsRequest(), 0).api_keys
        self._versions: dict[int, int] = {api.api_key: api.max_version for api in known}

    def identity(self, transactional_id: str | None = None) -> Identity:
        found = self._ask(
            InitProducerIdRequest(
                transactional_id=transactional_id,
                transaction_timeout_ms=60_000,
                producer_id=-1,
                producer_epoch=-1,
            )
        )
        _check(found.error_code)
        return Identity(found.producer_id, found.producer_epoch)

    def add_partition(self, transactional_id: str, identity: Identity) -> None:
        topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=TOPIC, partitions=[0])
        found = self._ask(
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=transactional_id,
                v3_and_below_producer_id=identity.producer_id,
                v3_and_below_producer_epoch=identity.epoch,
                v3_and_below_topics=[topic],
            ),
            highest=3,
        )
        _check(found.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)

    def append(
        self,
        identity: Identity,
        sequence: int,
        values: list[str],
        transactional_id: str | None = None,
    ) -> int:
        records = batch(
            *(value.encode() for value in values),
            producer=identity,
            sequence=sequence,
            transactional=transactional_id is not None,
        )
        request = produce({(TOPIC, 0): records}, transactional_id=transactional_id)
        answer = self._ask(request, highest=12).responses[0].partition_responses[0]
        _check(answer.error_code)
        return int(answer.base_offset)

    def end(self, transactional_id: str, identity: Identity, *, committed: bool) -> Identity:
        found = self._ask(
            EndTxnRequest(
                transactional_id=transactional_id,
                producer_id=identity.producer_id,
                producer_epoch=identity.epoch,
                committed=committed,
            ),
        )
        _check(found.error_code)
        if found.producer_id is None or found.producer_id < 0:  # Of a version that does not tell.
            return identity
        return Identity(found.producer_id, found.producer_epoch)

    def close(self) -> None:
        self._peer.socket.close()

    def _ask(self, request: ApiMessage, highest: int = 100) -> Any:
        """`highest`: where later versions are for brokers, or have topic ids instead of names."""
        version = min(self._versions[request.API_KEY], request.max_version, highest)
        return self._peer.ask(request, version)


def _check(code: int) -> None:
    if code:
        raise ck.KafkaException(ck.KafkaError(code))
