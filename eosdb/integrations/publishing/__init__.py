"""Snapshots in object storage: published by a device, fetched by readers that share no file system."""

from eosdb.integrations.publishing.cache import Cache
from eosdb.integrations.publishing.fetching import Published, fetch, files, is_file, published
from eosdb.model.validation import is_url

__all__ = ["Cache", "Published", "fetch", "files", "is_file", "is_url", "published"]
