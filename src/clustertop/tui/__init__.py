"""The console; the only importer of textual."""
