"""The folder of a saved forecaster: the only place that knows its files, its lock and its journal.

files.py     config.json, model.safetensors and states.safetensors: a `Fitted` on disk
journal.py   stream.jsonl: the rows that a stream has answered since the states were saved
lock.py      one writer at a time
access.py    reading and writing all of these together
"""
