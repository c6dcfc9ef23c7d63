"""Benchmarks: each compares with a peer in the same run, on the same data, and prints a table."""
