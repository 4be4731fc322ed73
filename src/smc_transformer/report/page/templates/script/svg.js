// SVG elements, lines and areas that leave gaps where numbers are missing, and the frame of a chart.

function element(name, attributes = {}, parent = null, text = null) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== null) made.textContent = text;
  if (parent) parent.append(made);
  return made;
}

const pixel = number => number.toFixed(2);

// Runs of consecutive indices at which all the lists have a number.
function runs(...lists) {
  const found = [];
  let open = false;
  lists[0].forEach((_, index) => {
    const there = lists.every(list => list[index] !== null && list[index] !== undefined);
    if (there && open) found[found.length - 1].push(index);
    else if (there) found.push([index]);
    open = there;
  });
  return found;
}

// A line through what is there; a number between two gaps is a dot of its own.
function drawLine(parent, xs, ys, x, y, attributes) {
  const pieces = runs(ys), joined = pieces.filter(piece => piece.length > 1);
  const group = element("g", { ...attributes, "data-values": JSON.stringify(ys) }, parent);
  const commands = joined.map(piece => piece.map((index, place) =>
    `${place ? "L" : "M"}${pixel(x(xs[index]))} ${pixel(y(ys[index]))}`).join(" ")).join(" ");
  if (commands) element("path", { d: commands, class: "stroke" }, group);
  for (const [index] of pieces.filter(piece => piece.length === 1)) {
    element("circle", { cx: pixel(x(xs[index])), cy: pixel(y(ys[index])), r: 2, class: "dot", "data-index": index }, group);
  }
  return group;
}

// The area between two lines; a single step is a narrow bar.
function drawArea(parent, xs, lower, upper, x, y, attributes) {
  const group = element("g", { ...attributes, "data-lower": JSON.stringify(lower), "data-upper": JSON.stringify(upper) }, parent);
  for (const piece of runs(lower, upper)) {
    const corners = piece.length > 1 ? piece.map(index => [x(xs[index]), index]) : [-4, 4].map(by => [x(xs[piece[0]]) + by, piece[0]]);
    const above = corners.map(([at, index]) => `${pixel(at)} ${pixel(y(upper[index]))}`);
    const below = corners.map(([at, index]) => `${pixel(at)} ${pixel(y(lower[index]))}`).reverse();
    element("path", { d: `M${above.join(" L")} L${below.join(" L")} Z`, class: "fill" }, group);
  }
  return group;
}

let clips = 0;

// An empty chart in a holder: axes, grid, and a clipped group `marks` for what is drawn.
//   xDomain, yDomain   ranges of the axes           xTicks, yTicks   functions (domain, count) -> ticks, or a list
//   height             in pixels; the width is the holder's
function makeChart(holder, { xDomain, yDomain, xTicks = numberTicks, yTicks = numberTicks, height = 240, label, zero = false, xTitle = "", dated = false }) {
  holder.replaceChildren();
  const width = Math.max(260, Math.round(holder.clientWidth || 640));
  const ticksOfY = typeof yTicks === "function" ? yTicks(yDomain, Math.max(3, Math.round(height / 60))) : yTicks;
  const longest = Math.max(2, ...ticksOfY.map(tick => tick.label.length));
  const margin = { top: 10, right: 14, bottom: (dated ? 38 : 24) + (xTitle ? 16 : 0), left: 14 + 6.6 * longest };
  const x = makeScale(xDomain, [margin.left, width - margin.right]);
  const y = makeScale(yDomain, [height - margin.bottom, margin.top]);
  const svg = element("svg", {
    viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label, tabindex: 0,
    "data-x-domain": JSON.stringify(x.domain), "data-x-pixels": JSON.stringify(x.pixels),
    "data-y-domain": JSON.stringify(y.domain), "data-y-pixels": JSON.stringify(y.pixels),
  }, holder);
  const axes = element("g", { class: "axes" }, svg);
  for (const tick of ticksOfY) {
    const at = pixel(y(tick.value));
    element("line", { x1: x.pixels[0], x2: x.pixels[1], y1: at, y2: at, class: tick.value === 0 && zero ? "level base" : "level" }, axes);
    element("text", { x: x.pixels[0] - 8, y: at, dy: "0.32em", class: "tick y", "data-value": tick.value }, axes, tick.label);
  }
  const room = dated ? 74 : 56;
  const ticksOfX = typeof xTicks === "function" ? xTicks(xDomain, Math.max(2, Math.floor((x.pixels[1] - x.pixels[0]) / room))) : xTicks;
  for (const tick of ticksOfX) {
    const at = pixel(x(tick.value));
    element("line", { x1: at, x2: at, y1: y.pixels[0], y2: y.pixels[0] + 4, class: "mark" }, axes);
    const text = element("text", { x: at, y: y.pixels[0] + 17, class: "tick x", "data-value": tick.value }, axes, tick.label);
    if (tick.below) element("text", { x: at, y: y.pixels[0] + 31, class: "tick x below" }, axes, tick.below);
    if (x(tick.value) + 3.3 * tick.label.length > width) text.style.textAnchor = "end";
  }
  if (xTitle) element("text", { x: (x.pixels[0] + x.pixels[1]) / 2, y: height - 4, class: "tick x title" }, axes, xTitle);
  const clip = `clip-${clips += 1}`;
  const box = element("clipPath", { id: clip }, element("defs", {}, svg));
  element("rect", { x: x.pixels[0] - 3, y: y.pixels[1] - 3, width: x.pixels[1] - x.pixels[0] + 6, height: y.pixels[0] - y.pixels[1] + 6 }, box);
  const marks = element("g", { class: "marks", "clip-path": `url(#${clip})` }, svg);
  return { svg, marks, x, y, width, height };
}

// The horizontal axis of times: its domain in numbers, and its ticks.
function timeAxis(times) {
  const numbers = times.map(readTime);
  const [from, to] = [Math.min(...numbers), Math.max(...numbers)];
  const half = numbers.length > 1 ? (to - from) / 200 : 1;
  return { dated: isDated(times), xDomain: [from - half, to + half], xTicks: isDated(times) ? timeTicks : wholeTicks };
}

// Ticks of steps, which are never fractions.
function wholeTicks(domain, count) {
  return numberTicks(domain, count).filter(tick => Number.isInteger(tick.value));
}

const shareTicks = [0, 0.25, 0.5, 0.75, 1].map(value => ({ value, label: `${100 * value} %` }));

// The meaning of a chart's colours, above it: [[name, class], ...].
function fillLegend(figure, entries) {
  figure.querySelector(".legend").replaceChildren(...entries.map(([name, kind]) => {
    const item = document.createElement("li");
    item.className = `key ${kind}`;
    item.textContent = name;
    return item;
  }));
}
