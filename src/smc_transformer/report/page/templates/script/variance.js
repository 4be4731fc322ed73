// The variance over the horizon, split: two stacked areas that add up to the whole.

function drawVariance(holder, page, series, targetIndex) {
  const { between, within } = series.targets[targetIndex];
  const steps = between.map((_, index) => index + 1);
  const total = between.map((value, index) => value === null || within[index] === null ? null : value + within[index]);
  const chart = makeChart(holder, {
    xDomain: [1 - 0.02 * steps.length, steps.length * 1.02], xTicks: wholeTicks, xTitle: "steps ahead",
    yDomain: [0, rangeOf([0, ...total])[1]], label: `Variance of the forecast, split, series ${series.name}`, zero: true,
  });
  const { marks, x, y, svg } = chart;
  svg.setAttribute("data-chart", "variance");
  drawArea(marks, steps, between.map(value => value === null ? null : 0), between, x, y, { class: "area one", "data-mark": "between" });
  drawArea(marks, steps, between, total, x, y, { class: "area two", "data-mark": "within" });
  addReadout(chart, steps, index => ({
    title: `step ${steps[index]}`,
    rows: [
      ["between particles", `${write(between[index])} (${percent(total[index] ? between[index] / total[index] : null, 0)})`, "one"],
      ["within particles", `${write(within[index])} (${percent(total[index] ? within[index] / total[index] : null, 0)})`, "two"],
      ["together", write(total[index])],
    ],
  }), index => [[between[index], "one"], [total[index], "two"]]);
}
