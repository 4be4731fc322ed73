"""Table 1: the synthetic series, beside the paper's numbers and the best possible ones."""

from smct_paper.experiments import paper_numbers
from smct_paper.experiments.paper_numbers import SyntheticNumbers, paper_name
from smct_paper.experiments.report.cells import EMPTY, MISSING, Cell, Table, TableRow, average_cell, text_cell
from smct_paper.experiments.report.names import dataset_title, method_title, synthetic_methods
from smct_paper.experiments.report.optimum import optimum
from smct_paper.experiments.report.results import Average, MethodKey, Results
from smct_paper.experiments.report.tables.shared import NO_FIGURE, not_run_note, score_cell

COLUMNS = ("method", "mse", "paper", "dist-mse", "paper", "NLL", "NLL above the optimum")
DIGITS = {"mse": 3, "dist_mse": 3, "nll": 4}


def optimal_method(results: Results, dataset: str) -> MethodKey | None:
    """The true distribution, if the runner scored it on the same windows as the methods."""
    return next((key for key in results.methods(dataset=dataset) if key.model == "bayes_optimal"), None)


def synthetic_table(results: Results, dataset: str) -> Table:
    """Every method on one synthetic series; the excess of NLL is paired by fold where the truth was scored too."""
    best, optimal = optimum(dataset), optimal_method(results, dataset)
    exact = [text_cell(f"{getattr(best, metric):.{digits}f}") for metric, digits in DIGITS.items()]
    theirs = paper_numbers.SYNTHETIC.get(("bayes_optimal", dataset))
    rows = [_row("Bayes-optimal, exact", [*exact, EMPTY], theirs, "reference")]
    if optimal is not None:
        scored = [*_scores(results, dataset, optimal), EMPTY]
        rows.append(_row("Bayes-optimal, on these folds", scored, None, "reference"))  # the paper's is in the row above
    methods = synthetic_methods(results.methods(dataset=dataset))
    for method in methods:
        *scores, nll = _scores(results, dataset, method)
        excess = nll_excess(results, dataset, method, optimal)
        above = nll if nll == MISSING else average_cell(excess, DIGITS["nll"], sign=True)
        theirs = paper_numbers.SYNTHETIC.get((paper_name(method.model, method.config, dataset), dataset))
        rows.append(_row(method_title(method), [*scores, nll, above], theirs))
    note = (
        "NLL above the optimum: the mean over folds of the difference to that of the true distribution, on the same "
        "test sequences."
        if optimal is not None
        else "NLL above the optimum: difference to the exact expectation; the truth was not scored on these folds."
    )
    return Table(
        title=f"Table 1, {dataset_title(dataset)}: one-step forecasts",
        columns=COLUMNS,
        rows=rows,
        notes=(note, NO_FIGURE, *not_run_note(results, methods, (dataset,))),
    )


def nll_excess(results: Results, dataset: str, method: MethodKey, optimal: MethodKey | None) -> Average | None:
    """NLL above that of the true distribution: paired by fold, or to its expectation where it was not scored."""
    if optimal is not None:
        return results.difference("nll", method, optimal, dataset=dataset, task="unistep")
    values = results.values("nll", dataset=dataset, task="unistep", method=method).values()
    return Average.over(value - optimum(dataset).nll for value in values)


def _scores(results: Results, dataset: str, method: MethodKey) -> list[Cell]:
    wanted = {"dataset": dataset, "task": "unistep", "method": method}
    return [score_cell(results, metric, wanted, digits) for metric, digits in DIGITS.items()]


def _row(heading: str, ours: list[Cell], paper: SyntheticNumbers | None, kind: str = "") -> TableRow:
    mse, dist_mse, *rest = ours
    their_mse, their_dist_mse = (_paper_cell(value) for value in paper or (None, None))
    return TableRow(heading, (mse, their_mse, dist_mse, their_dist_mse, *rest), kind)


def _paper_cell(value: float | None) -> Cell:
    return EMPTY if value is None else text_cell(f"{value:g}" if value < 0.01 else f"{value:.2f}", "paper")
