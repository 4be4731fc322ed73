"""The tables of the report, one kind in each file; all numbers come from the rows."""
