"""What the pool costs beside what a user would pick instead: `python tests/benchmarks`."""
