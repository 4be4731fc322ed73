"""Table 1: the synthetic series, beside the paper's numbers and the best possible ones."""

from smct_paper.experiments import paper_numbers
from smct_paper.experiments.paper_numbers import SyntheticNumbers, paper_name
from smct_paper.experiments.report.cells import EMPTY, MISSING, Cell, Table, TableRow, average_part, text_cell
from smct_paper.experiments.report.names import (
    dataset_title,
    method_title,
    synthetic_methods,
)
from smct_paper.experiments.report.optimum import optimum
from smct_paper.experiments.report.results import Average, MethodKey, Results
from smct_paper.experiments.report.tables.notes import NO_FIGURE, not_run_note

COLUMNS = ("method", "mse", "paper", "dist-mse", "paper", "NLL", "NLL above the optimum")
NLL_DIGITS = 4


def optimal_method(results: Results, dataset: str) -> MethodKey | None:
    """The true distribution, if the runner scored it on the same windows as the methods."""
    return next((key for key in results.methods(dataset=dataset) if key.model == "bayes_optimal"), None)


def synthetic_table(results: Results, dataset: str) -> Table:
    """Every method on one synthetic series; the excess of NLL is paired by fold where the truth was scored too."""
    found = results.methods(dataset=dataset)
    optimal = optimal_method(results, dataset)
    rows, missing = [_exact_row(dataset)], []
    if optimal is not None:
        rows.append(_row(results, dataset, optimal, None, "Bayes-optimal, on these folds", "reference"))
    for method in synthetic_methods(found):
        if method not in found:
            missing.append((method, dataset))
        rows.append(_row(results, dataset, method, optimal, method_title(method)))
    excess = (
        "NLL above the optimum: the mean over folds of the difference to that of the true distribution, on the same "
        "test sequences."
        if optimal is not None
        else "NLL above the optimum: difference to the exact expectation; the truth was not scored on these folds."
    )
    return Table(
        title=f"Table 1, {dataset_title(dataset)}: one-step forecasts",
        columns=COLUMNS,
        rows=tuple(rows),
        notes=(excess, NO_FIGURE, *not_run_note(missing, (dataset,))),
    )


def _exact_row(dataset: str) -> TableRow:
    best = optimum(dataset)
    paper = paper_numbers.SYNTHETIC.get(("bayes_optimal", dataset))
    cells = (
        text_cell(f"{best.mse:.3f}"),
        _paper_cell(paper, "mse"),
        text_cell(f"{best.dist_mse:.3f}"),
        _paper_cell(paper, "dist_mse"),
        text_cell(f"{best.nll:.{NLL_DIGITS}f}"),
        EMPTY,
    )
    return TableRow("Bayes-optimal, exact", cells, "reference")


def _row(
    results: Results, dataset: str, method: MethodKey, optimal: MethodKey | None, heading: str, kind: str = ""
) -> TableRow:
    wanted = {"dataset": dataset, "task": "unistep", "method": method}
    paper = paper_numbers.SYNTHETIC.get((paper_name(method.model, method.config, dataset), dataset))
    if kind == "reference":
        paper = None  # the paper's true model stands in the row above
    if not results.select(**wanted):
        return TableRow(
            heading,
            (MISSING, _paper_cell(paper, "mse"), MISSING, _paper_cell(paper, "dist_mse"), MISSING, MISSING),
            kind,
        )
    cells = (
        _average_cell(results.average("mse", **wanted), 3),
        _paper_cell(paper, "mse"),
        _average_cell(results.average("dist_mse", **wanted), 3),
        _paper_cell(paper, "dist_mse"),
        _average_cell(results.average("nll", **wanted), NLL_DIGITS),
        EMPTY
        if kind == "reference"
        else _average_cell(nll_excess(results, dataset, method, optimal), NLL_DIGITS, True),
    )
    return TableRow(heading, cells, kind)


def nll_excess(results: Results, dataset: str, method: MethodKey, optimal: MethodKey | None) -> Average | None:
    """NLL above that of the true distribution: paired by fold, or to its expectation where it was not scored."""
    if optimal is not None:
        return results.difference("nll", method, optimal, dataset=dataset, task="unistep")
    values = results.values("nll", dataset=dataset, task="unistep", method=method).values()
    return Average.over(value - optimum(dataset).nll for value in values)


def _average_cell(average: Average | None, digits: int, sign: bool = False) -> Cell:
    return EMPTY if average is None else Cell((average_part(average, digits, sign=sign),))


def _paper_cell(paper: SyntheticNumbers | None, metric: str) -> Cell:
    value = None if paper is None else getattr(paper, metric)
    return EMPTY if value is None else text_cell(f"{value:g}" if value < 0.01 else f"{value:.2f}", "paper")
