"""Inference: the particle filter of a network, over whole sequences or one observation at a time, and what it gives."""
