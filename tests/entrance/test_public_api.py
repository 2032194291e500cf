"""What has a name for users stays as it is, or changes by a line of public_api.txt."""

from __future__ import annotations

import pytest

from scripts import make_public_api


@pytest.mark.slow
def test_nothing_public_comes_goes_or_changes_unseen() -> None:
    now = make_public_api.document()
    changed = make_public_api.difference(now)
    assert not changed, (
        "docs/compatibility.md says what may change and how; then `python -m scripts.make_public_api` "
        f"writes tests/entrance/public_api.txt anew, and CHANGELOG.md says it:\n{changed}"
    )
    assert make_public_api.difference(now.replace("ProducerFencedError", "")), "it would be seen"
