"""The same work without tenure: the least code on the same driver that could do it."""
