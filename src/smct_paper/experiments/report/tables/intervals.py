"""The paper's tables on real data (split `paper`): ours and theirs, one below the other."""

from smct_paper.experiments import paper_numbers
from smct_paper.experiments.paper_numbers import REAL_DATASETS, paper_name
from smct_paper.experiments.report.cells import EMPTY, MISSING, Cell, Part, Table, TableRow, average_part, number
from smct_paper.experiments.report.names import dataset_title, method_title, model_title, real_methods
from smct_paper.experiments.report.ranking import best_intervals, lowest
from smct_paper.experiments.report.results import MethodKey, Results
from smct_paper.experiments.report.tables.shared import not_run_note

RULE = (
    "First line: mse. Second line: PICP | MPIW. Bold: the lowest mse, and the best pair: below 0.95 the higher PICP "
    "wins, among those at 0.95 or more the lower MPIW. Ours are ranked among ours (all seeds averaged), the paper's "
    "among the paper's."
)
PAPER_NOTES = {
    "unistep": (
        "The paper's 0.97 | 0.108 (LSTM, dropout 0.5, stock) wins by the rule, but looks like a misprint of 1.08: the "
        "widths beside it grow with the rate, and the paper itself marks 0.95 | 0.38.",
    ),
    "multistep": (
        "The paper repeats the unistep mse in this table, so that only its intervals are compared.",
        "The paper prints the same multistep intervals for several pairs of its methods (LSTM, dropout 0.1 and 0.2 on "
        "energy and stock; LSTM and Transformer, dropout 0.2, on air quality and weather).",
    ),
}


def interval_table(results: Results, task: str) -> Table:
    """Methods of both, by data set, with winners."""
    methods = real_methods(results.methods(split="paper", task=task))
    ours = [_our_cells(results, task, methods, dataset) for dataset in REAL_DATASETS]
    theirs = [_paper_cells(task, dataset) for dataset in REAL_DATASETS]
    their_names = [paper_name(method.model, method.config, "covid") for method in methods]
    rows = []
    for method, name, next_name in zip(methods, their_names, [*their_names[1:], None], strict=True):
        rows.append(TableRow(method_title(method), tuple(column[method] for column in ours)))
        if name != next_name and any(name in column for column in theirs):  # after the last of ours of that name
            heading = f"{model_title(name)}, in the paper"
            rows.append(TableRow(heading, tuple(column.get(name, EMPTY) for column in theirs), "paper"))
    return Table(
        title=f"{task.capitalize()} forecasts, split `paper`",
        columns=("method", *map(dataset_title, REAL_DATASETS)),
        rows=rows,
        notes=(RULE, *PAPER_NOTES[task], *not_run_note(results, methods, REAL_DATASETS, split="paper", task=task)),
    )


def _our_cells(results: Results, task: str, methods: list[MethodKey], dataset: str) -> dict[MethodKey, Cell]:
    wanted = {"split": "paper", "task": task, "dataset": dataset}
    means = {metric: results.means(metric, methods, **wanted) for metric in ("mse", "picp", "mpiw")}
    best_mse = lowest(means["mse"])
    best_pair = best_intervals({key: (means["picp"][key], mpiw) for key, mpiw in means["mpiw"].items()})
    cells = {}
    for method in methods:
        mse, picp, mpiw = (results.average(metric, method=method, **wanted) for metric in means)
        parts = [] if mse is None else [average_part(mse, best=method in best_mse)]
        if picp is not None and mpiw is not None:
            deviations = [number(part.deviation) for part in (picp, mpiw) if part.deviation is not None]
            spread = f"± {' | '.join(deviations)}" if len(deviations) == 2 else ""
            parts.append(Part(f"{number(picp.mean)} | {number(mpiw.mean)}", spread, method in best_pair))
        cells[method] = Cell(tuple(parts)) if results.select(method=method, **wanted) else MISSING
    return cells


def _paper_cells(task: str, dataset: str) -> dict[str, Cell]:
    numbers = {model: value for (model, name), value in paper_numbers.REAL[task].items() if name == dataset}
    best_mse = lowest({model: value.mse for model, value in numbers.items() if value.mse is not None})
    pairs = {model: (picp, mpiw) for model, (_, picp, mpiw) in numbers.items() if picp is not None and mpiw is not None}
    best_pair = best_intervals(pairs)
    cells = {}
    for model, (mse, _, _) in numbers.items():
        parts = [] if mse is None else [Part(f"{mse:.3f}", best=model in best_mse)]
        if model in pairs:
            parts.append(Part(" | ".join(map(_printed, pairs[model])), best=model in best_pair))
        cells[model] = Cell(tuple(parts), "paper")
    return cells


def _printed(value: float) -> str:
    """A number as the paper prints it: two decimals, unless it has more."""
    return f"{value:.2f}" if round(value, 2) == value else f"{value:g}"
