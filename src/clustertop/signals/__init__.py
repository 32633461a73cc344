"""What readings mean. Pure functions and tables of metrics; no I/O."""
