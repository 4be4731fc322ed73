"""Names of series in a query are text; those of a table may be whole numbers."""

from fastapi import HTTPException

from smc_transformer.forecaster.live import Service
from smc_transformer.forecaster.rows import RowError, row_series
from smc_transformer.forecaster.table import Name
from smc_transformer.serve.errors import problem


def find_series(service: Service, text: str) -> Name:
    """The series that is followed under this name."""
    fitted = service.forecaster.fitted
    try:
        return row_series({fitted.settings.id_column: text}, fitted)
    except RowError as error:
        raise HTTPException(404, problem(error.kind, str(error), column="series")) from None
