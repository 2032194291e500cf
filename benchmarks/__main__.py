"""`python -m benchmarks` is `make bench` without the figures of groups and Spark."""

from benchmarks.run import main

if __name__ == "__main__":
    raise SystemExit(main())
