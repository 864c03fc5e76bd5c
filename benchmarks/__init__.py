"""Benchmarks: every speed claim of the project as a named case, measured beside its rivals in one run.

``python -m benchmarks [CASE ...] [--max-areas M] --out FILE.jsonl``
"""
