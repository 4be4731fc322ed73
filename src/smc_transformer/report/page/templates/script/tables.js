// Tables of numbers: the forecast of a series, and the scores of the backtest.

function fillTable(table, head, rows) {
  const line = (cells, first) => {
    const row = document.createElement("tr");
    cells.forEach((text, index) => {
      const cell = document.createElement(first || index === 0 ? "th" : "td");
      cell.scope = first ? "col" : "row";
      cell.textContent = text;
      row.append(cell);
    });
    return row;
  };
  const [top, body] = ["thead", "tbody"].map(name => document.createElement(name));
  top.append(line(head, true));
  body.append(...rows.map(row => line(row, false)));
  table.replaceChildren(top, body);
}

function fillForecast(table, page, series, targetIndex) {
  const target = series.targets[targetIndex], intervals = intervalsOf(page.quantile_levels).reverse();
  const median = page.quantile_levels.indexOf(0.5);
  const head = [page.time_label, "mean", "median", ...intervals.flatMap(({ level }) => [`${level} % from`, "to"])];
  fillTable(table, head, series.forecast_times.map((time, step) => [
    writeTime(time), write(target.mean[step]), write(median < 0 ? null : target.quantiles[median][step]),
    ...intervals.flatMap(({ lower, upper }) => [write(target.quantiles[lower][step]), write(target.quantiles[upper][step])]),
  ]));
}

function fillScores(table, backtest) {
  const head = ["interval", "held (PICP)", "mean width (MPIW)", "Winkler score"];
  fillTable(table, head, backtest.levels.map(({ level, picp, mpiw, winkler }) =>
    [`${level} %`, percent(picp), write(mpiw), write(winkler)]));
}
