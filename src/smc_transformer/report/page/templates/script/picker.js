// Choosing a series from a list: by pointer, by arrow keys, or by typing a part of its name.

function makePicker(list, search, names, choose) {
  const options = names.map((name, index) => {
    const option = document.createElement("li");
    Object.assign(option, { id: `series-${index}`, textContent: name, title: name });
    option.setAttribute("role", "option");
    option.dataset.series = name;
    option.addEventListener("click", () => pick(index));
    return option;
  });
  list.append(...options);
  let chosen = -1;

  const shown = () => options.map((_, index) => index).filter(index => !options[index].hidden);

  function pick(index) {
    if (chosen >= 0) options[chosen].setAttribute("aria-selected", "false");
    chosen = index;
    options[index].setAttribute("aria-selected", "true");
    list.setAttribute("aria-activedescendant", options[index].id);
    // Into view within the list only: the page itself must not jump.
    const { offsetTop: top, offsetLeft: left, offsetHeight: height, offsetWidth: width } = options[index];
    if (top < list.scrollTop) list.scrollTop = top;
    else if (top + height > list.scrollTop + list.clientHeight) list.scrollTop = top + height - list.clientHeight;
    if (left < list.scrollLeft) list.scrollLeft = left;
    else if (left + width > list.scrollLeft + list.clientWidth) list.scrollLeft = left + width - list.clientWidth;
    choose(index);
  }

  function move(event) {
    const visible = shown(), place = visible.indexOf(chosen), last = visible.length - 1;
    const moves = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1, PageDown: 10, PageUp: -10, Home: -Infinity, End: Infinity };
    const inSearch = event.target === search;
    if (!(event.key in moves) || last < 0 || (inSearch && !["ArrowDown", "ArrowUp", "PageDown", "PageUp"].includes(event.key))) return;
    event.preventDefault();
    pick(visible[place < 0 ? 0 : Math.max(0, Math.min(last, place + moves[event.key]))]);
  }

  list.addEventListener("keydown", move);
  search.addEventListener("keydown", move);
  search.addEventListener("keydown", event => {
    const visible = shown();
    if (event.key === "Enter" && visible.length) pick(visible[0]);
  });
  search.addEventListener("input", () => {
    const wanted = search.value.trim().toLowerCase();
    names.forEach((name, index) => { options[index].hidden = !name.toLowerCase().includes(wanted); });
    list.dataset.empty = String(shown().length === 0);
  });
  return { pick };
}
