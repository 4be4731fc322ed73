"""Names of series in a query are text; those of a table may be whole numbers."""

from fastapi import HTTPException

from smc_transformer.forecaster.live import Service
from smc_transformer.forecaster.rows import RowError
from smc_transformer.forecaster.table import Name
from smc_transformer.serve.errors import problem


def find_series(service: Service, text: str, *, fetching: bool = True) -> Name:
    """The series that is followed under this name, in memory from now on if it is needed there."""
    try:
        return service.find_series(text, fetching=fetching)
    except RowError as error:
        raise HTTPException(404, problem(error.kind, str(error), column="series")) from None
