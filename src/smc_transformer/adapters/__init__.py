"""The forecaster in other people's libraries; only the files here need these."""
