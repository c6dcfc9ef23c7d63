"""One module a benchmark: a docstring whose first line says what it measures, and `run(data) -> Report`."""
