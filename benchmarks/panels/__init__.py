"""Seven public panels with default settings, beside other tools: docs/panels.md."""
