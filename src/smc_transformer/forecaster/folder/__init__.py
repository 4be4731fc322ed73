"""The folder of a saved forecaster: the only place that knows its files, its lock and its store.

files.py     config.json, model.safetensors and states.safetensors: a `Fitted` on disk
recorded.py  what a stream has answered, whoever wrote it down
store/       the rows that a stream has accepted, in SQLite or PostgreSQL
journal.py   stream.jsonl: the same as earlier versions wrote it
lock.py      one writer at a time
access.py    reading and writing all of these together
"""
