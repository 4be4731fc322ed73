"""`smct serve`: a forecaster behind HTTP (docs/live.md).

worker.py     one thread that owns the forecaster: takes all that is queued as one batch
recent.py     the last surprises, and alerts
app.py        the application: routes put together, errors as JSON
reading.py    rows in the body of a request
rows.py       POST /rows
forecasts.py  GET /forecasts, GET /paths
watching.py   GET /series, /history, /surprises, /alerts, /events
access.py     bearer tokens
limits.py     how much one request, and all of them together, may ask for
metrics.py    counters for Prometheus
running.py    the process: listen, and stop after all that was taken is answered
page/         the page for people on duty
"""
