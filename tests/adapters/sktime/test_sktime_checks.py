"""All of sktime's own checks that the tags of the forecaster enable."""

import pytest
from sktime.utils.estimator_checks import check_estimator, parametrize_with_checks

from smc_transformer.adapters.sktime import SMCForecaster

# The checks warn of many things that are not ours.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


@parametrize_with_checks(SMCForecaster, obj_varname="forecaster", check_varname="name")
def test_a_check_of_sktime(forecaster, name):
    found = check_estimator(forecaster, tests_to_run=name, raise_exceptions=True, verbose=False)
    assert found  # a check that does not run says nothing
