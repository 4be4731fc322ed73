// The numbers under the pointer. Arrow keys move through a chart that has the focus; Escape leaves.
//   chart      from makeChart                    xs         numbers on its horizontal axis, in order
//   describe   index -> { title, rows }          points     index -> [[value, class], ...] to mark, or null

function addReadout(chart, xs, describe, points = () => []) {
  const { svg, x, y } = chart;
  const places = xs.map(value => x(value));
  const cursor = element("g", { class: "cursor", "data-mark": "cursor" }, svg);
  const box = document.createElement("div");
  box.className = "readout";
  box.setAttribute("role", "status");
  box.hidden = true;
  svg.parentElement.append(box);
  let current = null;

  function hide() {
    current = null;
    cursor.replaceChildren();
    box.hidden = true;
  }

  function show(index) {
    if (index === current) return;
    current = index;
    const at = places[index];
    cursor.replaceChildren();
    element("line", { x1: at, x2: at, y1: y.pixels[0], y2: y.pixels[1] }, cursor);
    for (const [value, kind] of points(index)) {
      if (value !== null && value !== undefined) element("circle", { cx: at, cy: y(value), r: 3.5, class: kind }, cursor);
    }
    const { title, rows } = describe(index);
    const heading = document.createElement("strong");
    heading.textContent = title;
    const list = document.createElement("dl");
    for (const [name, value, kind] of rows) {
      const term = document.createElement("dt"), answer = document.createElement("dd");
      if (kind) term.className = `key ${kind}`;
      term.textContent = name;
      answer.textContent = value;
      list.append(term, answer);
    }
    box.replaceChildren(heading, list);
    box.hidden = false;
    box.dataset.index = index;
    // Beside the cursor, on the side that has room; the picture may be drawn at another size than its own.
    const factor = svg.getBoundingClientRect().width / chart.width, room = svg.parentElement.clientWidth;
    const left = at * factor + 14 + box.offsetWidth <= room ? at * factor + 14 : at * factor - 14 - box.offsetWidth;
    box.style.left = `${Math.max(0, Math.min(left, room - box.offsetWidth))}px`;
  }

  function nearest(event) {
    const bounds = svg.getBoundingClientRect();
    const at = (event.clientX - bounds.left) * chart.width / bounds.width;
    let best = 0;
    places.forEach((place, index) => { if (Math.abs(place - at) < Math.abs(places[best] - at)) best = index; });
    return best;
  }

  svg.addEventListener("pointermove", event => show(nearest(event)));
  svg.addEventListener("pointerdown", event => show(nearest(event)));
  svg.addEventListener("pointerleave", hide);
  svg.addEventListener("blur", hide);
  svg.addEventListener("keydown", event => {
    const last = places.length - 1;
    const begin = chart.begin === undefined ? last : chart.begin;
    const moves = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10 };
    if (event.key in moves) show(current === null ? begin : Math.max(0, Math.min(last, current + moves[event.key])));
    else if (event.key === "Home") show(0);
    else if (event.key === "End") show(last);
    else if (event.key === "Escape") hide();
    else return;
    event.preventDefault();
  });
}
