"""The statements of projections, for the live tables and the baseline's."""

from __future__ import annotations

from eosdb.store.schema.newest import in_baseline


# decisions/0022: both use the same projections, so their statements differ only in table names.
class Statement(str):
    """SQL on materialized tables, written with their names in braces. The text itself is for the live
    tables; `baseline` is for those of the baseline."""

    __slots__ = ("baseline",)

    baseline: str

    def __new__(cls, template: str) -> Statement:
        statement = super().__new__(cls, template.format_map(_Live()))
        statement.baseline = template.format_map(_Baseline())
        return statement


class _Live(dict[str, str]):
    def __missing__(self, table: str) -> str:
        return table


class _Baseline(dict[str, str]):
    def __missing__(self, table: str) -> str:
        return in_baseline(table)
