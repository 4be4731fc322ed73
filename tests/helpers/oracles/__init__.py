"""Exact answers, written apart from the library: plain loops, closed forms and quadrature.

They read the model's parameters by name and nothing else of it.
"""
