"""What every layer may use: checks of arguments, randomness, progress, JSON."""
