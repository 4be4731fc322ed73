"""Where a stream keeps the rows that it has accepted, and their answers: SQLite beside the model, or PostgreSQL.

accepted.py   rows and answers in tables, one transaction for each batch
databases.py  the two databases: how a connection is made, and what each calls things
opening.py    which database belongs to a folder
"""
