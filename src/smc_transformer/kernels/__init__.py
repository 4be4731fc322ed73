"""C kernels for the work that torch does slowly on a CPU: steps of the filter, noise, the replay.

A wheel for the platform brings them, for several levels of processors; otherwise they are compiled on first use (some
seconds; kept in the cache folder afterwards). Where neither is possible (no compiler, another device or type of
numbers), torch does the same work, and a log line says so. Set SMC_TRANSFORMER_KERNELS=off, or use `disabled()`, to do
without.
"""

from smc_transformer.kernels.library import disabled, library, threads_for_kernels

__all__ = ["disabled", "library", "threads_for_kernels"]
