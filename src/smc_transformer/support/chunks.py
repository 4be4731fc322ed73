"""How much work is done at once, so that its memory is bounded."""


def chunk_size(numbers_at_once: int, numbers_each: int) -> int:
    """How many sequences or rows a chunk has, at least one, if so many numbers may be held and each holds so many."""
    return max(1, numbers_at_once // numbers_each)
