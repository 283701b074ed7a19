"""tenure: durable background work for Python, held on leases."""
