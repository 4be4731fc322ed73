// What is shown: the chosen series and target, drawn again when the choice or the width changes.

const page = JSON.parse(document.getElementById("page-data").textContent);
const find = name => document.getElementById(name);
const choice = { series: 0, target: 0, paths: false };

function showFigure(name, there, draw) {
  const figure = find(name);
  figure.hidden = !there;
  if (there) draw(figure.querySelector(".chart"));
}

function drawSeries() {
  const series = page.series[choice.series], target = series.targets[choice.target];
  find("series-name").textContent = series.name;
  find("series-target").textContent = page.targets[choice.target];
  find("paths-toggle").hidden = target.paths.length === 0;
  drawFan(find("fan").querySelector(".chart"), page, series, choice.target, choice);
  fillForecast(find("forecast-table"), page, series, choice.target);
  find("variance-of").textContent = target.variance_of;
  showFigure("variance", target.between.length > 0, holder => drawVariance(holder, page, series, choice.target));
  showFigure("attention", series.attention !== null, holder => drawAttention(holder, series));
  showFigure("health", series.health !== null, holder => drawHealth(holder, series));
}

function drawBacktest() {
  const backtest = page.backtest[choice.target];
  if (!backtest) return;
  fillScores(find("scores-table"), backtest);
  const facts = [["forecasts", backtest.n_forecasts], ["values compared", backtest.n_values], ["CRPS", backtest.crps],
    ["mean squared error", backtest.mse], ["energy score", backtest.energy_score]];
  const list = find("backtest-facts");
  list.replaceChildren();
  for (const [name, value] of facts.filter(([, value]) => value !== null)) {
    const fact = document.createElement("div"), term = document.createElement("dt"), answer = document.createElement("dd");
    term.textContent = name;
    answer.textContent = write(value);
    fact.append(term, answer);
    list.append(fact);
  }
  const judged = backtest.n_values > 0;
  showFigure("calibration", judged, holder => drawCalibration(holder, backtest));
  showFigure("pit", judged, holder => drawPit(holder, backtest));
  showFigure("coverage", judged && backtest.levels.length > 0, holder => drawCoverage(holder, backtest));
}

function drawAll() {
  drawSeries();
  drawBacktest();
}

// Targets: a row of buttons, of which one is pressed.
page.targets.forEach((name, index) => {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = name;
  button.dataset.target = name;
  button.setAttribute("aria-pressed", String(index === 0));
  button.addEventListener("click", () => {
    choice.target = index;
    for (const [place, other] of [...find("targets").querySelectorAll("button")].entries()) other.setAttribute("aria-pressed", String(place === index));
    drawAll();
  });
  find("targets").append(button);
});
find("targets").hidden = page.targets.length < 2;

const picker = makePicker(find("series-list"), find("series-search"), page.series.map(series => series.name), index => {
  choice.series = index;
  drawSeries();
});
find("paths").addEventListener("change", event => {
  choice.paths = event.target.checked;
  drawSeries();
});

// The system's colours, until the reader wants the others.
find("theme").addEventListener("click", () => {
  const dark = getComputedStyle(document.documentElement).colorScheme === "dark"
    || (!document.documentElement.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.dataset.theme = dark ? "light" : "dark";
});

// A chart needs a width, which it does not have while it is folded away.
find("health").addEventListener("toggle", drawSeries);

picker.pick(0);
drawBacktest();

let drawnAt = document.body.clientWidth;
new ResizeObserver(() => {
  if (document.body.clientWidth === drawnAt) return;
  drawnAt = document.body.clientWidth;
  requestAnimationFrame(drawAll);
}).observe(document.body);
document.documentElement.dataset.ready = "true";
