// Attention over the past: a bar for the mean weight of each slot, a whisker for its spread across particles.

function drawAttention(holder, series) {
  const { times, mean, lower, upper } = series.attention;
  // Slots are counted back from the last row, which is 0.
  const back = times.map((_, index) => index - times.length + 1);
  const chart = makeChart(holder, {
    xDomain: [back[0] - 0.6, 0.6], xTicks: wholeTicks, xTitle: "steps back from the last row",
    yDomain: [0, rangeOf([0, ...upper, ...mean])[1]], label: `Attention over the past, series ${series.name}`, zero: true,
  });
  const { marks, x, y, svg } = chart;
  svg.setAttribute("data-chart", "attention");
  const width = Math.max(1, Math.min(18, 0.62 * Math.abs(x(1) - x(0))));
  const even = pixel(y(1 / times.length));
  element("line", { x1: x.pixels[0], x2: x.pixels[1], y1: even, y2: even, class: "reference", "data-mark": "even" }, marks);
  back.forEach((at, index) => {
    const names = { "data-mark": "attention", "data-index": index, "data-mean": mean[index], "data-lower": lower[index], "data-upper": upper[index] };
    const group = element("g", names, marks);
    element("rect", { x: pixel(x(at) - width / 2), width: pixel(width), y: pixel(y(mean[index])), height: pixel(y(0) - y(mean[index])), class: "bar one" }, group);
    element("line", { x1: pixel(x(at)), x2: pixel(x(at)), y1: pixel(y(lower[index])), y2: pixel(y(upper[index])), class: "whisker" }, group);
  });
  addReadout(chart, back, index => ({
    title: `${writeTime(times[index])} (${-back[index]} back)`,
    rows: [["mean weight", percent(mean[index]), "one"], ["5 to 95 % of particles", `${percent(lower[index])} to ${percent(upper[index])}`]],
  }));
}
