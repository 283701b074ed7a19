"""Claim, run, settle: what a worker process does."""
