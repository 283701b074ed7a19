"""Measures tenure against the raw engine and against peers, as ratios taken in the same run.

`python -m benchmarks --list` names the benchmarks; the targets are in `targets.py`.
"""
