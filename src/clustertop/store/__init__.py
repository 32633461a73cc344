"""Columns of the newest readings, their history, and one frozen view of all of them."""
