// The probability integral transform: flat where forecasts are calibrated.

function drawPit(holder, backtest) {
  const counts = backtest.pit, total = counts.reduce((sum, count) => sum + count, 0), even = total / counts.length;
  const chart = makeChart(holder, {
    xDomain: [0, 1], xTicks: [0, 0.25, 0.5, 0.75, 1].map(value => ({ value, label: String(value) })), xTitle: "probability integral transform",
    yDomain: [0, Math.max(1, rangeOf([0, ...counts, even])[1])], yTicks: wholeTicks, height: 260, label: "Histogram of the probability integral transform", zero: true,
  });
  const { marks, x, y, svg } = chart;
  svg.setAttribute("data-chart", "pit");
  counts.forEach((count, index) => {
    const [from, to] = [x(index / counts.length), x((index + 1) / counts.length)];
    element("rect", { x: pixel(from + 1), width: pixel(to - from - 2), y: pixel(y(count)), height: pixel(y(0) - y(count)), class: "bar one", "data-mark": "pit", "data-count": count }, marks);
  });
  element("line", { x1: x(0), x2: x(1), y1: pixel(y(even)), y2: pixel(y(even)), class: "reference", "data-mark": "even" }, marks);
  addReadout(chart, counts.map((_, index) => (index + 0.5) / counts.length), index => ({
    title: `${(index / counts.length).toFixed(2)} to ${((index + 1) / counts.length).toFixed(2)}`,
    rows: [["observations", write(counts[index], 9), "one"], ["if calibrated", write(even)]],
  }));
}
