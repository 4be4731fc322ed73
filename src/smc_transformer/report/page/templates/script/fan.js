// The fan chart: history, intervals, median, and sampled paths on request.

// Central intervals of the page's quantiles, widest first: { level, lower, upper } with indices of the ends.
function intervalsOf(levels) {
  const found = [];
  levels.forEach((low, lower) => {
    const upper = levels.findIndex(high => Math.abs(low + high - 1) < 1e-9);
    if (low < 0.5 && upper >= 0) found.push({ level: Math.round(1000 * (levels[upper] - low)) / 10, lower, upper });
  });
  return found.sort((one, other) => other.level - one.level);
}

function drawFan(holder, page, series, targetIndex, options) {
  const target = series.targets[targetIndex];
  const past = series.history_times.map(readTime), ahead = series.forecast_times.map(readTime);
  const intervals = intervalsOf(page.quantile_levels);
  const median = target.quantiles[page.quantile_levels.indexOf(0.5)] || target.mean;
  let yDomain = rangeOf([...target.history, ...median, ...target.mean, ...intervals.flatMap(({ lower, upper }) =>
    [...target.quantiles[lower], ...target.quantiles[upper]])]);
  if (options.paths && target.paths.length) {
    // A wild path may widen the axis, but not squeeze everything else flat.
    const reach = (yDomain[1] - yDomain[0]) / 2, [low, high] = rangeOf(target.paths.flat());
    yDomain = [Math.max(Math.min(low, yDomain[0]), yDomain[0] - reach), Math.min(Math.max(high, yDomain[1]), yDomain[1] + reach)];
  }
  const chart = makeChart(holder, {
    ...timeAxis([...series.history_times, ...series.forecast_times]), yDomain,
    height: holder.clientWidth < 520 ? 280 : 380, label: `Forecast of ${page.targets[targetIndex]}, series ${series.name}`,
  });
  const { marks, x, y } = chart;
  const names = { "data-series": series.name, "data-target": page.targets[targetIndex] };
  chart.svg.setAttribute("data-chart", "fan");

  if (past.length && ahead.length) {
    const now = (x(past[past.length - 1]) + x(ahead[0])) / 2;
    element("line", { x1: now, x2: now, y1: y.pixels[0], y2: y.pixels[1], class: "now" }, marks);
  }
  intervals.forEach(({ level, lower, upper }, place) => drawArea(marks, ahead, target.quantiles[lower], target.quantiles[upper],
    x, y, { ...names, class: `band band-${place}`, "data-mark": "band", "data-level": level }));
  // The fan opens from the last value, if that is the one before the first step.
  const last = past.length ? target.history[past.length - 1] : null;
  const join = (draw, ...ends) => last !== null && ahead.length &&
    draw(marks, [past[past.length - 1], ahead[0]], ...ends.map(end => [last, end[0]]), x, y);
  intervals.forEach(({ lower, upper }, place) => join((...given) => drawArea(...given, { ...names, class: `band band-${place}`, "data-mark": "join" }),
    target.quantiles[lower], target.quantiles[upper]));
  if (options.paths) {
    target.paths.forEach((path, number) =>
      drawLine(marks, ahead, path, x, y, { ...names, class: "path", "data-mark": "path", "data-path": number }));
  }
  drawLine(marks, past, target.history, x, y, { ...names, class: "history", "data-mark": "history" });
  for (const [line, kind] of [[target.mean, "mean"], [median, "median"]]) {
    join((...given) => drawLine(...given, { ...names, class: kind, "data-mark": "join" }), line);
  }
  drawLine(marks, ahead, target.mean, x, y, { ...names, class: "mean", "data-mark": "mean" });
  drawLine(marks, ahead, median, x, y, { ...names, class: "median", "data-mark": "median" });

  fillLegend(holder.parentElement, [...(past.length ? [["observed", "history"]] : []), ["median", "median"], ["mean", "mean"],
    ...intervals.map(({ level }, place) => [`${level} %`, `band-${place}`]).reverse()]);
  chart.begin = past.length; // the keyboard begins at the forecast's first step
  addReadout(chart, [...past, ...ahead], index => {
    if (index < past.length) {
      const value = target.history[index];
      return { title: writeTime(series.history_times[index]), rows: [["observed", value === null ? "missing" : write(value), "history"]] };
    }
    const step = index - past.length;
    const rows = [["median", write(median[step]), "median"], ["mean", write(target.mean[step]), "mean"]];
    for (const { level, lower, upper } of [...intervals].reverse()) {
      const place = intervals.findIndex(one => one.level === level);
      rows.push([`${level} %`, `${write(target.quantiles[lower][step])} to ${write(target.quantiles[upper][step])}`, `band-${place}`]);
    }
    return { title: `${writeTime(series.forecast_times[step])} (step ${step + 1})`, rows };
  }, index => index < past.length ? [[target.history[index], "history"]] : [[median[index - past.length], "median"]]);
}
