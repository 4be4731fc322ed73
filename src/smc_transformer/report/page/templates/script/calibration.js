// Calibration: how often central intervals held what came, against how often they promised to.

function drawCalibration(holder, backtest) {
  const { calibration_levels: levels, calibration_coverage: coverage } = backtest;
  const chart = makeChart(holder, {
    xDomain: [0, 1], yDomain: [0, 1], xTicks: shareTicks, yTicks: shareTicks, xTitle: "promised", height: 260, label: "Calibration curve of the backtest",
  });
  const { marks, x, y, svg } = chart;
  svg.setAttribute("data-chart", "calibration");
  element("line", { x1: x(0), y1: y(0), x2: x(1), y2: y(1), class: "reference" }, marks);
  drawLine(marks, levels, coverage, x, y, { class: "line one", "data-mark": "calibration" });
  levels.forEach((level, index) => {
    if (coverage[index] !== null) element("circle", { cx: pixel(x(level)), cy: pixel(y(coverage[index])), r: 2.5, class: "spot one" }, marks);
  });
  addReadout(chart, levels, index => ({
    title: `${percent(levels[index], 0)} intervals`, rows: [["held", percent(coverage[index]), "one"], ["promised", percent(levels[index])]],
  }), index => [[coverage[index], "one"]]);
}
