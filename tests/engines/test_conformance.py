"""The shipped suite, on every engine of `conftest.ENGINES`."""

from tenure.testing.conformance.suite import *  # noqa: F403
