"""When: one node's life, pacing and back-off."""
