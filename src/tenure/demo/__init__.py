"""What `tenure demo` runs: real files, real worker processes, and one real kill."""
