"""What users look at: charts and the report page."""
