"""What `Database` offers for readers elsewhere: copies for other hosts, and snapshots in object storage."""

from __future__ import annotations

import os
from collections.abc import Mapping

from eosdb.maintenance import copies
from eosdb.model.clock import Clock
from eosdb.model.progress import Progress, report_progress
from eosdb.model.reports import PublishReport
from eosdb.model.validation import check_path, check_whole
from eosdb.publishing import sending
from eosdb.publishing.storage import Storage, is_url
from eosdb.store.store import Store


class Publishing:
    """The part of `Database` that publishes."""

    clock: Clock
    _store: Store

    def publish(
        self,
        target: str | os.PathLike[str],
        *,
        keep: int = 10,
        anew: bool = False,
        folder: str | os.PathLike[str] | None = None,
        storage_options: Mapping[str, object] | None = None,
        on_progress: Progress | None = None,
    ) -> PublishReport | None:
        """Publish the file as it is now for readers on other hosts. The live file must only be opened on
        its own host. Nobody can write to what is published; `backup` and `restore_to` make an ordinary
        file of it.

        A path gets a copy, which replaces the previous one, and None is returned. A URL (`s3://…`, by
        fsspec) gets a snapshot, of which only what has changed is sent; it appears whole or not at all,
        and the `keep` newest stay. A call that failed is taken up by the next. `anew` sends everything,
        which mends what has been damaged there. The file is copied first, in `folder` or beside it.
        `on_progress(done, total)` counts bytes. Raises StorageError, DatabaseFullError, ConfigError, and
        IllegalStateError if `target` is an ordinary eosdb file, which is not replaced.
        """
        self._store.check_open()
        if not is_url(target):
            copies.publish(self._store, check_path("target", target))
            return None
        check_whole("keep", keep, 1)
        storage = Storage.open(str(target), storage_options, self.clock)
        where = None if folder is None else check_path("folder", folder)
        return report_progress(
            on_progress,
            lambda report: sending.publish(
                self._store, self.clock, storage, keep, anew, where, report
            ),
        )
