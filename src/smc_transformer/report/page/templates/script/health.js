// Particle health: effective sample size, and how many particles of each step still have descendants.

function drawHealth(holder, series) {
  const { times, ess, unique, n_particles: count } = series.health;
  const numbers = times.map(readTime);
  const chart = makeChart(holder, {
    ...timeAxis(times), yDomain: [0, count * 1.05], label: `Particle health, series ${series.name}`, zero: true,
  });
  const { marks, x, y, svg } = chart;
  svg.setAttribute("data-chart", "health");
  drawLine(marks, numbers, unique, x, y, { class: "line two", "data-mark": "unique" });
  drawLine(marks, numbers, ess, x, y, { class: "line one", "data-mark": "ess" });
  addReadout(chart, numbers, index => ({
    title: writeTime(times[index]),
    rows: [["effective sample size", write(ess[index], 3), "one"], ["distinct ancestors", write(unique[index], 3), "two"], ["particles", String(count)]],
  }), index => [[ess[index], "one"], [unique[index], "two"]]);
}
