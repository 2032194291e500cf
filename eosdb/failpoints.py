"""The public name of `eosdb.model.failpoints`."""

import sys

from eosdb.model import failpoints
from eosdb.model.failpoints import *  # noqa: F403

sys.modules[__name__] = failpoints
