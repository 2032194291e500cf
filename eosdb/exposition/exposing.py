"""The part of a `Database` that counts."""

from __future__ import annotations

from eosdb.admin.topics import Admin
from eosdb.broker.handler import Core


class Exposing:
    """What a database object has done, and how its file is, in figures."""

    _core: Core

    def metrics(self) -> dict[str, float]:
        """What this object has done since it was opened: requests and their time by name, records
        and bytes in, repeated batches, errors by name, commits and fsyncs of SQLite; rates over the
        last minute."""
        return {**self._core.metrics.snapshot(), **self._core.store.counts()}

    def metrics_text(self) -> str:
        """The figures for Prometheus, in its text format: what this object has done (`metrics`), and the
        file at this instant (`Admin.overview`), as far as the principal may describe it.

        Names begin with `eosdb_`; times are in seconds, sizes in bytes (docs/observability.md).
        """
        from eosdb.exposition import figures
        from eosdb.exposition.text import written

        of_process = figures.of_process(self.metrics(), self._core.store.commit_times())
        return written([*of_process, *figures.of_file(Admin(self._core).overview())])
