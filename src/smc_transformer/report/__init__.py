"""What users look at: charts of forecasts, surprises and backtests, and the report page."""
