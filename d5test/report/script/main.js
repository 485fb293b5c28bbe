// The page at work: its data unpacked, its table filled, its drawings drawn.

async function begin() {
  const data = await unpacked(document.getElementById("data").textContent);
  const compared = data.old.length > 0;
  new Table(data, document.getElementById("benchmarks"));
  document.getElementById("key").textContent = compared
    ? `Point: the change. Line: the limit to both sides; where it reaches zero no change is known. Band: half of the ${d3.format(".3~p")(data.effect)} that were to be found. Old and new are the medians of the runs, of times of their fastest rounds.`
    : "Values are medians of the runs, of times of their fastest rounds.";
  fill("ratios", judged(data), drawRatios);
  fill("steps", data.shown.steps, drawSteps);
  const save = document.getElementById("save");
  save.hidden = false;
  save.addEventListener("click", () => download(data));
}

function judged(data) {
  return data.new.flatMap((run) => run.entries.flatMap((entry) => {
    const [ratio] = valuesOf(data, entry, "error / bar");
    const place = [entry.about["d5test.backend.name"], entry.about["d5test.dtype"]].join(" ");
    return ratio === undefined ? [] : [{ ratio: Math.max(ratio, 1e-6), place }];
  }));
}

function fill(id, found, draw) {
  const box = document.getElementById(id);
  if (box && found.length) box.replaceWith(draw(found, box.clientWidth));
}

function download(data) {
  const place = URL.createObjectURL(new Blob([JSON.stringify(data)], { type: "application/json" }));
  make("a", { href: place, download: "d5test.json" }).click();
  URL.revokeObjectURL(place);
}

begin();
