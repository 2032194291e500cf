"""The only writer of Prometheus' text format 0.0.4."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
Labels = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric and its samples. The name of a counter ends in `_total`; that of a histogram is without
    `_bucket`."""

    name: str
    kind: str
    text: str
    samples: Sequence[tuple[str, Labels, float]]
    """Each a name suffix, labels, and a value."""


def counter(name: str, text: str, samples: Iterable[tuple[Labels, float]]) -> Metric:
    return Metric(name, "counter", text, [("", labels, value) for labels, value in samples])


def gauge(name: str, text: str, samples: Iterable[tuple[Labels, float]]) -> Metric:
    return Metric(name, "gauge", text, [("", labels, value) for labels, value in samples])


def histogram(
    name: str, text: str, bounds: Sequence[float], counts: Sequence[int], total: float
) -> Metric:
    """Build a histogram; `counts` has one number for each bound, and one for values beyond the last
    bound."""
    samples: list[tuple[str, Labels, float]] = []
    so_far = 0
    for bound, count in zip((*map(_number, bounds), "+Inf"), counts, strict=True):
        so_far += count
        samples.append(("_bucket", {"le": bound}, so_far))
    return Metric(name, "histogram", text, [*samples, ("_sum", {}, total), ("_count", {}, so_far)])


def written(metrics: Iterable[Metric]) -> str:
    """The metrics as text. A metric without samples is left out."""
    return "".join(f"{line}\n" for metric in metrics if metric.samples for line in _lines(metric))


def _lines(metric: Metric) -> Iterator[str]:
    yield f"# HELP {metric.name} {_escaped(metric.text)}"
    yield f"# TYPE {metric.name} {metric.kind}"
    for suffix, labels, value in metric.samples:
        inside = ",".join(f'{name}="{_quoted(str(text))}"' for name, text in labels.items())
        braces = f"{{{inside}}}" if inside else ""
        yield f"{metric.name}{suffix}{braces} {_number(value)}"


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")


def _quoted(text: str) -> str:
    return _escaped(text).replace('"', r"\"")
