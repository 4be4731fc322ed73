"""The local view: each column relative to what simple, causal forecasts say about it (docs/view.md)."""
