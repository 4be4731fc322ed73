"use strict";
// The page of people on duty: a list of the series that were surprising, one of them in full, both live.

const $ = (id) => document.getElementById(id);
const state = { token: sessionStorage.getItem("token"), series: null, target: null, history: null, fan: null,
  summary: null, stream: null, seconds: 900, readAt: null };
const ROWS = 120, ALERT = 0.001;

// --- the server ---------------------------------------------------------------------------------------------

const headers = () => (state.token ? { Authorization: `Bearer ${state.token}` } : {});

async function get(path, parameters) {
  const response = await fetch(`${path}?${new URLSearchParams(parameters)}`, { headers: headers() });
  if (response.status === 401) { askForToken(); throw new Error("a token is needed"); }
  const document_ = await response.json();
  if (!response.ok) throw new Error(document_.error ? document_.error.reason : response.statusText);
  return document_;
}

function askForToken() {
  if ($("ask").open) return;
  $("wrong").textContent = state.token ? "This token is not known." : "";
  $("ask").showModal();
}

$("ask").addEventListener("close", () => {
  state.token = $("token").value.trim();
  sessionStorage.setItem("token", state.token);
  listen();
  if (state.series !== null) load();
});

// Read by fetch, since an EventSource cannot send a token.
async function listen() {
  if (state.stream) state.stream.abort();
  const stream = state.stream = new AbortController();
  const parameters = { seconds: state.seconds, most: 40 };
  if (state.series !== null) parameters.series = state.series;
  try {
    const response = await fetch(`/events?${new URLSearchParams(parameters)}`,
      { headers: headers(), signal: stream.signal });
    if (response.status === 401) { askForToken(); return; }
    if (!response.ok) throw new Error(response.statusText);
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) throw new Error("the server has ended the stream");
      const events = (rest + value).split("\n\n");
      rest = events.pop();
      for (const event of events) {
        const [, kind, data] = event.match(/^event: (\w+)\ndata: (.*)$/);
        handle(kind, JSON.parse(data));
      }
    }
  } catch (error) {
    if (stream.signal.aborted) return;
    show("bad", `no connection: ${error.message}`);
    setTimeout(() => { if (state.stream === stream) listen(); }, 2000);
  }
}

function handle(kind, data) {
  if (kind === "summary") {
    state.summary = data;
    show(data.failure ? "bad" : "ok", data.failure || "live");
    $("counts").textContent = `${data.series.toLocaleString("en")} series, ${data.taken.toLocaleString("en")} rows taken` +
      (data.queued ? `, ${data.queued.toLocaleString("en")} waiting` : "") + (data.failure ? `: ${data.failure}` : "");
    drawList();
  } else if (kind === "row" && state.history) {
    // Several rows may come at once: the series is read again after the last.
    clearTimeout(state.later);
    state.later = setTimeout(load, 150);
  }
}

function show(kind, text) { $("state").className = `dot ${kind}`; $("state").title = text; }

// --- the list -----------------------------------------------------------------------------------------------

const odds = (tail) => (tail >= 0.5 ? "as expected" : tail < 1e-6 ? "1 in > 1,000,000"
  : `1 in ${Math.round(1 / tail).toLocaleString("en")}`);
const short = (number) => (number === null || number === undefined ? "missing"
  : Number(number).toLocaleString("en", { maximumSignificantDigits: 5 }));
const clock = (time) => (typeof time === "string" ? time.replace("T", " ").replace(/:00$/, "") : String(time));

function ago(seconds) {
  return seconds < 2 ? "now" : seconds < 90 ? `${Math.round(seconds)} s ago` : seconds < 5400
    ? `${Math.round(seconds / 60)} min ago` : `${Math.round(seconds / 3600)} h ago`;
}

function element(name, attributes = {}, text = null) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== null) made.textContent = text;
  return made;
}

function drawList() {
  // A series that has just begun: its first row, which nothing has predicted, is no surprise.
  const listed = new Set(state.summary.surprising.map((one) => one.series));
  const found = [...state.summary.surprising, ...state.summary.begun.filter((one) => !listed.has(one.series))];
  $("quiet").hidden = found.length > 0;
  $("quiet").textContent = state.summary.taken ? "No rows in this time." : "Waiting for the first rows.";
  const items = found.map((one) => {
    const button = element("button", { type: "button" });
    button.classList.toggle("alert", one.tail < ALERT);
    button.classList.toggle("chosen", String(one.series) === state.series);
    const began = one.tail === undefined;
    button.append(element("span", { class: "who" }, one.series),
      element("span", { class: "odds" }, began ? "new" : odds(one.tail)),
      element("span", { class: "what" }, began ? `first row at ${clock(one.time)}`
        : `${one.target} ${short(one.value)} at ${clock(one.time)}`),
      element("span", { class: "ago" }, ago(state.summary.now - one.received)));
    button.addEventListener("click", () => choose(String(one.series)));
    const item = element("li");
    item.append(button);
    return item;
  });
  const focused = document.activeElement && document.activeElement.closest("#surprising li");
  const place = focused ? [...$("surprising").children].indexOf(focused) : -1;
  $("surprising").replaceChildren(...items);
  if (place >= 0 && items[place]) items[place].firstChild.focus();
}

$("since").addEventListener("change", () => { state.seconds = Number($("since").value); listen(); });

$("search").addEventListener("submit", (event) => {
  event.preventDefault();
  const name = $("name").value.trim();
  if (name) choose(name);
});

$("name").addEventListener("input", async () => {
  try {
    const { series } = await get("/series", { contains: $("name").value, most: 12 });
    $("names").replaceChildren(...series.map((one) => element("option", { value: one.series })));
  } catch { /* the list is a help only */ }
});

// --- one series ---------------------------------------------------------------------------------------------

function choose(name) {
  if (location.hash !== `#${encodeURIComponent(name)}`) location.hash = encodeURIComponent(name);
  else follow();
}

function follow() {
  const name = decodeURIComponent(location.hash.slice(1));
  state.series = name || null;
  state.target = state.readAt = state.history = null;
  document.body.classList.toggle("looking", Boolean(name));
  $("one").hidden = !name;
  $("nothing").hidden = Boolean(name);
  if (state.summary) drawList();
  if (name) { $("title").textContent = name; load(); }
  listen();
}

$("back").addEventListener("click", () => { location.hash = ""; });
addEventListener("hashchange", follow);

async function load() {
  const name = state.series;
  try {
    const history = await get("/history", { series: name, most: ROWS });
    let fan = null, reason = "";
    try {
      fan = (await get("/forecasts", [["series", name], ["level", 50], ["level", 80], ["level", 95], ["n_paths", 500]])).rows;
    } catch (error) { reason = ` No forecast: ${error.message}`; }
    if (name !== state.series) return;
    Object.assign(state, { history, fan });
    if (!history.targets.includes(state.target)) state.target = history.targets[0];
    drawOne(reason);
  } catch (error) {
    $("facts").textContent = error.message;
    $("chart").replaceChildren();
    $("health").replaceChildren();
  }
}

function drawOne(reason = "") {
  const { history, target } = state, rows = history.rows;
  $("title").textContent = history.series;
  $("targets").replaceChildren(...(history.targets.length < 2 ? [] : history.targets.map((one) => {
    const button = element("button", { type: "button", "aria-pressed": one === target }, one);
    button.addEventListener("click", () => { state.target = one; drawOne(); });
    return button;
  })));
  const last = rows.length ? rows[rows.length - 1] : null;
  const surprise = last && last.surprise.find((one) => one.target === target);
  $("facts").textContent = (last
    ? `Last: ${short(last.values[target])} at ${clock(last.time)}` + (surprise ? `, ${odds(tail(surprise.pit))}.` : ".")
    : `No rows since the fit; it ended at ${clock(history.last_time)}.`) + reason;
  drawChart();
  const { particles, effective, distinct, steps } = history.particles;
  $("health").replaceChildren(
    meter("effective particles", effective, particles, 0.1), meter("distinct memories", distinct, particles, 0.02),
    element("span", {}, `${steps.toLocaleString("en")} steps seen`));
}

const tail = (pit) => (pit === null ? 1 : 2 * Math.min(pit, 1 - pit));

function meter(text, value, most, low) {
  const box = element("div"), bar = element("div", { class: "meter" }), inside = element("i");
  inside.style.width = `${Math.max(1, 100 * value / most)}%`;
  box.classList.toggle("low", value / most < low);
  bar.append(inside);
  box.append(element("span", {}, `${text}: ${Math.round(value)} of ${most}`), bar);
  return box;
}

// --- the chart ----------------------------------------------------------------------------------------------

function svg(name, attributes = {}, text = null) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== null) made.textContent = text;
  return made;
}

// The levels of the intervals in a row of a forecast, the widest first.
const levels = (row, target) => Object.keys(row).filter((key) => key.startsWith(`${target}-lo-`))
  .map((key) => key.slice(target.length + 4)).sort((a, b) => b - a);

const number = (time) => (typeof time === "string" ? Date.parse(time) : time);

function chartData() {
  const { history, fan, target } = state, column = history.time_column;
  const values = history.rows.map((row) => ({ x: number(row.time), time: row.time, y: row.values[target],
    surprise: row.surprise.find((one) => one.target === target) || null, forecast: row.forecast }));
  const known = new Map(values.map((one) => [one.x, one]));
  const past = [];  // the first step of each forecast, at the time that it was for
  for (const one of values) {
    const next = one.forecast && one.forecast[0];
    if (next && next[target] !== undefined) past.push({ x: number(next[column]), row: next });
  }
  for (const one of past) if (known.has(one.x)) known.get(one.x).before = one.row;
  const ahead = (fan || []).map((row) => ({ x: number(row[column]), time: row[column], row }));
  return { values, past: past.filter((one) => known.has(one.x)), ahead };
}

function drawChart() {
  const { target } = state, { values, past, ahead } = chartData();
  const box = $("chart"), wide = Math.max(320, box.clientWidth || 800), tall = Math.round(Math.min(420, wide * 0.62));
  const left = 52, right = 12, top = 12, bottom = 28;
  const xs = [...values, ...ahead].map((one) => one.x);
  if (!xs.length) { box.replaceChildren(); return; }
  const ys = values.map((one) => one.y).filter((y) => y !== null);
  for (const { row } of past) for (const level of levels(row, target)) {
    ys.push(row[`${target}-lo-${level}`], row[`${target}-hi-${level}`]);
  }
  for (const { row } of ahead) for (const level of levels(row, target)) {
    ys.push(row[`${target}-lo-${level}`], row[`${target}-hi-${level}`]);
  }
  let [low, high] = [Math.min(...ys), Math.max(...ys)];
  if (low === high) { low -= 1; high += 1; }
  const margin = 0.06 * (high - low), first = Math.min(...xs), span = Math.max(...xs) - first || 1;
  const x = (value) => left + (value - first) / span * (wide - left - right);
  const y = (value) => tall - bottom - (value - low + margin) / (high - low + 2 * margin) * (tall - top - bottom);
  const root = svg("svg", { viewBox: `0 0 ${wide} ${tall}`, role: "img", "aria-label": `${target} of ${state.series}` });
  for (const tick of ticks(low, high, 5)) {
    root.append(svg("line", { class: "grid", x1: left, x2: wide - right, y1: y(tick), y2: y(tick) }),
      svg("text", { x: left - 6, y: y(tick) + 4, "text-anchor": "end" }, short(tick)));
  }
  const all = [...values, ...ahead], step = Math.max(1, Math.ceil(all.length / (wide / 150)));
  let lastLabel = -Infinity;
  all.forEach((one, place) => {
    if (place % step || x(one.x) - lastLabel < 110 || x(one.x) > wide - 60) return;
    lastLabel = x(one.x);
    root.append(svg("text", { x: x(one.x), y: tall - 8, "text-anchor": place ? "middle" : "start" }, clock(one.time)));
  });
  // Forecasts that it had: columns as wide as a step, so that gaps stay gaps.
  const gaps = values.slice(1).map((one, place) => one.x - values[place].x).filter((gap) => gap > 0);
  const column = (gaps.length ? Math.min(...gaps) : span) / span * (wide - left - right);
  for (const { x: at, row } of past) {
    levels(row, target).slice(0, 2).forEach((level, place) => {
      const [lo, hi] = [y(row[`${target}-lo-${level}`]), y(row[`${target}-hi-${level}`])];
      root.append(svg("rect", { class: place ? "band inner" : "band", x: x(at) - column / 2, width: column,
        y: hi, height: Math.max(1, lo - hi) }));
    });
  }
  if (ahead.length) {
    const start = values.length ? values[values.length - 1] : null;
    for (const level of levels(ahead[0].row, target)) {
      const upper = ahead.map((one) => `${x(one.x)},${y(one.row[`${target}-hi-${level}`])}`);
      const lower = ahead.map((one) => `${x(one.x)},${y(one.row[`${target}-lo-${level}`])}`).reverse();
      const from = start && start.y !== null ? [`${x(start.x)},${y(start.y)}`] : [];
      root.append(svg("polygon", { class: "fanband", points: [...from, ...upper, ...lower].join(" ") }));
    }
    root.append(svg("polyline", { class: "mean", points: ahead.map((one) => `${x(one.x)},${y(one.row[target])}`).join(" ") }));
    if (start) root.append(svg("line", { class: "now", x1: x(start.x), x2: x(start.x), y1: top, y2: tall - bottom }));
  }
  let run = [];
  const runs = [run];
  for (const one of values) if (one.y === null) runs.push(run = []); else run.push(`${x(one.x)},${y(one.y)}`);
  for (const points of runs) root.append(svg("polyline", { class: "values", points: points.join(" ") }));
  for (const one of values) {
    if (one.y === null) continue;
    root.append(svg("circle", { class: "value", cx: x(one.x), cy: y(one.y), r: values.length > 80 ? 1.8 : 2.6 }));
    if (one.surprise && tail(one.surprise.pit) < 0.01) {
      root.append(svg("circle", { class: "mark", cx: x(one.x), cy: y(one.y), r: tail(one.surprise.pit) < ALERT ? 9 : 6 }));
    }
  }
  const cursor = svg("line", { class: "cursor", y1: top, y2: tall - bottom, visibility: "hidden" });
  root.append(cursor);
  const read = (event) => {
    const frame = root.getBoundingClientRect(), at = (event.clientX - frame.left) / frame.width * wide;
    const nearest = all.reduce((best, one) => (Math.abs(x(one.x) - at) < Math.abs(x(best.x) - at) ? one : best));
    cursor.setAttribute("x1", x(nearest.x));
    cursor.setAttribute("x2", x(nearest.x));
    cursor.setAttribute("visibility", "visible");
    $("reading").textContent = describe(nearest);
  };
  root.addEventListener("pointermove", read);
  root.addEventListener("pointerdown", read);
  box.replaceChildren(root);
}

function describe(one) {
  const { target } = state, row = one.row || one.before;
  const interval = (found) => {
    const [level] = levels(found, target);
    return level ? ` (${level} %: ${short(found[`${target}-lo-${level}`])} to ${short(found[`${target}-hi-${level}`])})` : "";
  };
  const forecast = row ? `${one.row ? "forecast" : "was forecast"} ${short(row[target])}${interval(row)}` : "";
  if (one.row) return `${clock(one.time)}: ${forecast}`;
  const surprise = one.surprise ? `, ${odds(tail(one.surprise.pit))}` : "";
  return `${clock(one.time)}: ${short(one.y)}${surprise}${forecast ? `; ${forecast}` : ""}`;
}

function ticks(low, high, most) {
  const rough = (high - low) / most, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((one) => one * power).find((one) => one >= rough);
  const found = [];
  for (let tick = Math.ceil(low / step) * step; tick <= high; tick += step) found.push(Number(tick.toPrecision(12)));
  return found;
}

let resized;
addEventListener("resize", () => { clearTimeout(resized); resized = setTimeout(() => { if (state.history) drawChart(); }, 100); });
setInterval(() => { if (state.history && !document.hidden && state.fan === null) load(); }, 60000);
follow();
