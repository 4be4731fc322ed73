"""Charts: of particles, of series, of backtests (needs matplotlib)."""
