"""What `make test-fast` leaves out: the marker of each room, or file, whose tests take their time."""

from __future__ import annotations

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent
MARKED: Final = {
    "crash": (
        "chaos",
        "concurrency",
        "crash",
        "integrations/lakehouse/test_kills.py",
        "pipeline",
        "store/file/test_failing_syncs.py",
    ),
    "simulation": (
        "properties",
        "simulation",
        "store/test_damage.py",
        "store/test_damaged_text.py",
        "log/test_damaged_indexes.py",
        "log/test_damaged_records.py",
    ),
    "spark": ("spark",),
    "slow": (
        "benchmarks",
        "conformance",
        "demo",
        "docs",
        "examples",
        "tidy",
        "cli/test_bad_command_lines.py",
        "cli/test_every_command.py",
        # Foreign clients, certificates, and hostile frames.
        *(
            f"wire/{name}"
            for name in (
                "fuzz",
                "test_fuzz.py",
                "test_shared_groups.py",
                "test_shared_processing.py",
                "test_across_the_border.py",
                "test_coming_to_the_end.py",
                "test_sasl.py",
                "test_guessing.py",
                "test_tls.py",
                "test_java.py",
                "test_kafka_python_admin.py",
                "test_two_servers.py",
                "test_allowance.py",
                "test_memory.py",
                "test_locked_file.py",
                "test_refused_by_file.py",
                "test_every_right.py",
            )
        ),
        "testing/test_kafka_double.py",
        "testing/test_kafka_double_groups.py",
    ),
}


def marker_of(path: Path) -> str | None:
    """The marker of the tests in a file."""
    for marker, rooms in MARKED.items():
        if any(path.is_relative_to(ROOT / room) for room in rooms):
            return marker
    return None
