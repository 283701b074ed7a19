"""Leases of any kind: the keeper renews what this process holds and tells holders what is lost."""
