"""How a choice between C and torch is made: from reasons against C, which are logged.

Whoever could use a kernel collects the reasons of the conditions that are not met, as sentences, and asks `in_c`.
Conditions of a whole network are in `inference.engine`, those of a layer's parts in `nn.conditions`; the one that all
have is here.
"""

import functools
import logging

from torch import Tensor

from smc_transformer.kernels.library import find

logger = logging.getLogger(__name__)


def in_c(reasons: list[str]) -> bool:
    """Whether C does a work that these reasons speak against; they are logged, each once."""
    if reasons and logger.isEnabledFor(logging.INFO):  # a log that is switched on later has not been told yet
        for reason in reasons:
            _say_once(reason)
    return not reasons


@functools.cache
def _say_once(reason: str) -> None:
    logger.info(reason)


def about_numbers(like: Tensor) -> list[str]:
    """There are kernels for numbers like these."""
    found = find(like)
    return [found] if isinstance(found, str) else []
