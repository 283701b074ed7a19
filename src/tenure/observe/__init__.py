"""Hooks: the only seam through which tenure tells what it does."""
