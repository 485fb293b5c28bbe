// What a row opens to: the values of each run, and the rounds where the metric is a time.

function detail(data, row, width) {
  const [was, name] = data.shown.benchmarks[row.benchmark];
  const entries = [...entriesOf(data, "old", was), ...entriesOf(data, "new", name)];
  const told = [name, was === name ? "" : `was ${was}`, row.reason ?? ""].filter(Boolean);
  const box = make("div", {}, make("p", { className: "note" }, told.join(" — ")));
  box.append(runs(data, row, entries));
  if (row.metric === "time") box.append(drawings(data, name, entries, width));
  return box;
}

function runs(data, row, entries) {
  const list = make("dl");
  for (const [side, found] of d3.group(entries, (d) => d.side)) {
    const values = row.runs[side === "old" ? 0 : 1] ?? [];
    const wrong = found.some(({ entry }) => !entry.right) ? " (outputs were wrong)" : "";
    const told = [(values.join(" | ") || "none") + wrong];
    const counts = [...new Set(found.map(({ entry }) => entry.count).filter(Boolean))];
    const rounds = row.metric === "time" && counts.length ? `; ${d3.extent(counts).filter(unique).join(" to ")} rounds each` : "";
    const paced = row.metric === "time" && found.every(({ entry }) => entry.paced) ? "; at the old version's pace, not by the clock" : "";
    list.append(make("div", {}, make("dt", {}, data.old.length ? side : "runs"), make("dd", {}, told.join(" | ") + rounds + paced)));
  }
  return list;
}

const unique = (value, k, every) => every.indexOf(value) === k;

function drawings(data, name, entries, width) {
  const half = width < 760 ? width : width / 2 - 24;
  const box = make("div", { className: "drawings" });
  const pair = Object.hasOwn(data.paired, name) ? data.paired[name].map(rounds) : null;
  if (pair && pair[0].length) box.append(drawPaired(...pair, half));
  const points = pair ? pairPoints(pair) : entries.flatMap(runPoints);
  if (!points.length) {
    return make("p", { className: "note" }, "No rounds are in the file, or no room was left for them.");
  }
  const runs = pair ? d3.groups(points, (d) => d.side).map(([side, found]) => ({ side, t: d3.min(found, (d) => d.t) }))
    : entries.map(({ side, entry }) => ({ side, t: valuesOf(data, entry, "time")[0] }));
  box.append(drawRounds(points, runs, half), drawDistributions(points, half));
  return box;
}

function runPoints({ side, run, entry }) {
  const found = rounds(entry.rounds);
  const step = found.length ? entry.count / found.length : 1;
  return Array.from(found, (t, k) => ({ side, run, t, round: Math.round(k * step) }));
}

function pairPoints(pair) {
  return ["old", "new"].flatMap((side, which) => Array.from(pair[which], (t, k) => ({ side, run: 1, t, round: k })));
}
