"""Widgets that draw lines: only what is visible, only what changed."""
