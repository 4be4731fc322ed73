"""What all tests share: one thread for each process (`make test` runs two), and tests as users run the package."""

import jaxtyping
import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture
def without_shape_checks():
    """As users run the package: only its own checks stand between them and a mistake."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", before)
