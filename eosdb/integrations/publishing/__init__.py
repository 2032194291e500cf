"""Snapshots in object storage: published from the file's host, fetched by readers on other hosts."""

from eosdb.integrations.publishing.fetching import (
    Cache,
    Published,
    fetch,
    files,
    is_file,
    published,
)

__all__ = ["Cache", "Published", "fetch", "files", "is_file", "published"]
