"""Each API has a file that is named by its key and its name, and says what its versions changed."""

from __future__ import annotations

import re
import sys

from eosdb.wire.apis import Api
from eosdb.wire.handlers import APIS, one_broker
from tests.cases import each

ELSEWHERE = [api for api in APIS.values() if api.handle.__module__ == one_broker.__name__]


@each("api", [api for api in APIS.values() if api not in ELSEWHERE])
def test_a_file_is_named_by_its_api_and_begins_with_its_versions(api: Api) -> None:
    snake_case = re.sub(r"(?<!^)(?=[A-Z])", "_", api.name).lower()
    assert api.handle.__module__.rpartition(".")[2] == f"k{api.key:02}_{snake_case}"
    text = " ".join((sys.modules[api.handle.__module__].__doc__ or "").split())
    assert text.startswith(f"{api.name}: ")
    versions = re.search(r"Versions? \d[^.]+", text)
    changed = [
        int(n) for n in re.findall(r"(?:^Versions?|;) (\d+)", versions[0] if versions else "")
    ]
    assert changed == sorted(set(changed))
    assert all(version <= api.highest for version in changed)
    if api.highest > api.lowest:
        assert changed, "what each version changed"


def test_the_table_of_one_broker_has_what_it_says() -> None:
    assert sorted(api.key for api in ELSEWHERE) == [34, 43, 45, 46, 48, 49, 55, 57, 76]
