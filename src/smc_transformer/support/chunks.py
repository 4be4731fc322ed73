"""How much work is done at once, so that its memory is bounded."""


def chunk_size(numbers_at_once: int, numbers_each: int) -> int:
    """How many of equal pieces of work (sequences, rows) a chunk has: at least one.

    Args:
        numbers_at_once: about how many numbers may be held at a time.
        numbers_each: how many numbers one piece holds.
    """
    return max(1, numbers_at_once // numbers_each)
