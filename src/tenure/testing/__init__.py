"""Tools for testing code that uses tenure, and for proving engines."""
