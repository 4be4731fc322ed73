"""The forecaster in other people's libraries, sktime and GluonTS; only the files here need these."""
