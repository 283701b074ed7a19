"""Where a body runs."""
