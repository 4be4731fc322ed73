// Numbers to pixels and back, ticks, and how numbers and times are written.

const SECOND = 1000, MINUTE = 60 * SECOND, HOUR = 60 * MINUTE, DAY = 24 * HOUR;
const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

// A straight line from domain [from, to] to pixels [start, end].
function makeScale(domain, pixels) {
  const [from, to] = domain, [start, end] = pixels;
  const scale = value => start + (value - from) / (to - from) * (end - start);
  return Object.assign(scale, { domain, pixels });
}

const present = values => values.filter(value => value !== null && value !== undefined);

// The range of numbers with a little air, never empty.
function rangeOf(values, air = 0.05) {
  let from = Infinity, to = -Infinity;
  for (const value of present(values)) {
    if (value < from) from = value;
    if (value > to) to = value;
  }
  if (from > to) return [0, 1];
  if (from === to) return [from - (Math.abs(from) || 1) / 2, to + (Math.abs(to) || 1) / 2];
  const margin = (to - from) * air;
  return [from - margin, to + margin];
}

// Steps of 1, 2 or 5 times a power of ten, for about so many ticks.
function niceStep(span, count) {
  const rough = span / Math.max(1, count), power = 10 ** Math.floor(Math.log10(rough));
  return power * ([1, 2, 5].find(factor => factor * power >= rough * 0.75) || 10);
}

function numberTicks([from, to], count) {
  const step = niceStep(to - from, count), ticks = [];
  for (let k = Math.ceil(from / step - 1e-9); k * step <= to + 1e-9 * step; k += 1) {
    ticks.push({ value: k * step, label: writeTick(k * step, step) });
  }
  return ticks;
}

function writeTick(value, step) {
  if (Math.abs(value) < step / 1e6) return "0";
  if (step >= 1e6 || Math.abs(value) >= 1e9 || step < 1e-5) return value.toExponential(1).replace("e+", "e");
  const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  return value.toLocaleString("en-GB", { minimumFractionDigits: digits, maximumFractionDigits: digits })
    .replace("-", "\u2212");
}

// A number for people: four significant digits.
function write(value, digits = 4) {
  if (value === null || value === undefined) return "\u2013";
  const size = Math.abs(value);
  if (size !== 0 && (size >= 1e9 || size < 1e-4)) return value.toExponential(digits - 1).replace("e+", "e");
  return value.toLocaleString("en-GB", { maximumSignificantDigits: Math.max(digits, size < 1 ? 0 : String(Math.trunc(size)).length) })
    .replace("-", "\u2212");
}

const percent = (share, digits = 1) => share === null || share === undefined ? "\u2013" : `${(100 * share).toFixed(digits)} %`;

// Times come as ISO text (read as UTC, so that no clock change moves a point) or as whole numbers.
const isDated = times => typeof times[0] === "string";
const readTime = time => typeof time === "string" ? Date.parse(time.endsWith("Z") ? time : `${time}Z`) : time;
const two = number => String(number).padStart(2, "0");

function writeTime(time) {
  if (typeof time !== "string") return write(time, 12);
  const date = new Date(readTime(time));
  const day = `${date.getUTCDate()} ${MONTHS[date.getUTCMonth()]} ${date.getUTCFullYear()}`;
  const midnight = date.getUTCHours() + date.getUTCMinutes() + date.getUTCSeconds() === 0;
  const seconds = date.getUTCSeconds() ? `:${two(date.getUTCSeconds())}` : "";
  return midnight ? day : `${day}, ${two(date.getUTCHours())}:${two(date.getUTCMinutes())}${seconds}`;
}

const STEPS = [
  ...[1, 5, 15, 30].map(n => n * SECOND), ...[1, 5, 15, 30].map(n => n * MINUTE), ...[1, 2, 3, 6, 12].map(n => n * HOUR),
  ...[1, 2, 7, 14].map(n => n * DAY),
];
const MONTH_STEPS = [1, 2, 3, 6, 12, 24, 60, 120, 240, 600, 1200];

// Ticks of a time axis: a label, and below it the day or the year where that changes.
function timeTicks([from, to], count) {
  const rough = (to - from) / Math.max(1, count), step = STEPS.find(size => size >= rough);
  const values = [];
  if (step !== undefined) {
    const offset = step >= 7 * DAY ? 4 * DAY : 0; // weeks begin on Mondays
    for (let k = Math.ceil((from - offset) / step); k * step + offset <= to; k += 1) values.push(k * step + offset);
  } else {
    const months = MONTH_STEPS.find(size => size * 30.4 * DAY >= rough) || 2400;
    const first = new Date(from), start = 12 * first.getUTCFullYear() + first.getUTCMonth();
    for (let k = Math.floor(start / months) * months; ; k += months) {
      const value = Date.UTC(Math.floor(k / 12), k % 12, 1);
      if (value > to) break;
      if (value >= from) values.push(value);
    }
  }
  let before = null;
  return values.map(value => {
    const date = new Date(value), year = String(date.getUTCFullYear());
    const day = `${date.getUTCDate()} ${MONTHS[date.getUTCMonth()]}`;
    let label, below;
    if (step !== undefined && step < DAY) {
      label = `${two(date.getUTCHours())}:${two(date.getUTCMinutes())}${step < MINUTE ? `:${two(date.getUTCSeconds())}` : ""}`;
      below = day;
    } else if (step !== undefined) {
      [label, below] = [day, year];
    } else {
      const yearly = values.every(other => new Date(other).getUTCMonth() === 0);
      [label, below] = yearly ? [year, ""] : [MONTHS[date.getUTCMonth()], year];
    }
    const changed = below !== before;
    before = below;
    return { value, label, below: changed ? below : "" };
  });
}
