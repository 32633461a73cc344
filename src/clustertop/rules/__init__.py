"""Judgement: rules over columns, and the transitions that every front end consumes."""
