"""Snapshots in object storage: published by a device, fetched by readers that share no file system."""

from eosdb.publishing.cache import Cache
from eosdb.publishing.fetching import Published, fetch, files, is_file, published
from eosdb.publishing.storage import is_url

__all__ = ["Cache", "Published", "fetch", "files", "is_file", "is_url", "published"]
