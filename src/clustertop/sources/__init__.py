"""What is not a node: BMCs, PDUs, switches and fabrics."""
