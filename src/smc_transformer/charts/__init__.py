"""What charts share, and charts of particles; they know no forecaster, which draws with them (needs matplotlib)."""
