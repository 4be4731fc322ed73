// Coverage over the horizon: a line for each level, beside what it promises.

function drawCoverage(holder, backtest) {
  const levels = [...backtest.levels].sort((one, other) => other.level - one.level);
  const steps = levels[0].picp_by_step.map((_, index) => index + 1);
  const values = levels.flatMap(({ level, picp_by_step: shares }) => [level / 100, ...shares]);
  const least = Math.min(...present(values)), from = Math.max(0, Math.floor((least - 0.03) * 20) / 20);
  const chart = makeChart(holder, {
    xDomain: [1 - 0.02 * steps.length, steps.length * 1.02], xTicks: wholeTicks, xTitle: "steps ahead", height: 260,
    yDomain: [from, 1.01], yTicks: (domain, count) => numberTicks(domain, count).map(({ value }) => ({ value, label: `${Math.round(1000 * value) / 10} %` })),
    label: "Coverage of the intervals over the horizon",
  });
  const { marks, x, y, svg } = chart;
  svg.setAttribute("data-chart", "coverage");
  levels.forEach(({ level, picp_by_step: shares }, place) => {
    const at = pixel(y(level / 100));
    element("line", { x1: x.pixels[0], x2: x.pixels[1], y1: at, y2: at, class: "reference" }, marks);
    drawLine(marks, steps, shares, x, y, { class: `line level level-${place}`, "data-mark": "coverage", "data-level": level });
  });
  fillLegend(holder.parentElement, [...levels.map(({ level }, place) => [`${level} % intervals`, `level-${place}`]), ["promised", "reference"]]);
  addReadout(chart, steps, index => ({
    title: `step ${steps[index]}`,
    rows: levels.map(({ level, picp_by_step: shares }, place) => [`${level} % intervals held`, percent(shares[index]), `level-${place}`]),
  }), index => levels.map(({ picp_by_step: shares }, place) => [shares[index], `level level-${place}`]));
}
