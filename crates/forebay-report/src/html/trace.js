// Traced requests: rank over time, or offset in one file over time. Reads are full lines, writes are lighter and dashed
// by a gap, so that they can be told apart without colour. A part of the run fills the whole width when it is dragged over,
// or chosen by buttons and keys.
function traceView(root, traces) {
  const canvas = root.querySelector("canvas");
  const pickTrace = root.querySelector("select.trace");
  const pickView = root.querySelector("select.view");
  const pickFile = root.querySelector("select.file");
  const rule = root.querySelector(".rule");
  const left = 84, right = 12, top = 10, bottom = 26, tall = 280;
  const readout = root.querySelector("output");
  const job = data.jobs[0];
  // The part of the run that is shown, in seconds; `null` for all of it.
  let shown = null, end = 1, plot = 1, drag = null;
  traces.forEach((trace, at) => pickTrace.append(element("option", { value: at }, trace.interface)));

  function fillFiles() {
    const trace = traces[Number(pickTrace.value)];
    const counts = new Map();
    for (const file of trace.file) counts.set(file, (counts.get(file) || 0) + 1);
    const order = [...counts].sort((a, b) => b[1] - a[1] || a[0] - b[0]).slice(0, 200);
    pickFile.replaceChildren(element("option", { value: "" }, "all files (" + number(counts.size) + ")"),
      ...order.map(([file, n]) => element("option", { value: file }, trace.names[file] + " (" + number(n) + ")")));
  }

  function draw() {
    const trace = traces[Number(pickTrace.value)];
    const file = pickFile.value === "" ? null : Number(pickFile.value);
    const byOffset = pickView.value === "offset";
    const { context, width } = prepare(canvas, top + tall + bottom);
    plot = width - left - right;
    const chosen = [];
    end = trace.end.reduce((a, b) => Math.max(a, b), 0) || 1;
    const { from, to } = shown || { from: 0, to: end };
    const long = to - from;
    // Offsets of what is shown fill the height.
    let least = shown ? Infinity : 0, most = 1;
    for (let i = 0; i < trace.rank.length; i += 1) {
      if (file !== null && trace.file[i] !== file) continue;
      if (byOffset && trace.offset[i] < 0) continue;
      if (trace.end[i] < from || trace.start[i] > to) continue;
      chosen.push(i);
      if (byOffset) {
        least = Math.min(least, trace.offset[i]);
        most = Math.max(most, trace.offset[i] + trace.length[i]);
      }
    }
    least = Math.min(least, most - 1);
    const high = most - least;
    const band = tall / Math.max(1, job.ranks);
    const dark = colour("--bar-dark"), mid = colour("--bar-mid");
    for (const i of chosen) {
      const start = Math.max(trace.start[i], from);
      const x = left + ((start - from) / long) * plot;
      const w = Math.max(((Math.min(trace.end[i], to) - start) / long) * plot, 1.2);
      context.fillStyle = trace.write[i] ? mid : dark;
      if (byOffset) {
        const y = top + tall - ((trace.offset[i] + trace.length[i] - least) / high) * tall;
        const h = Math.max((trace.length[i] / high) * tall, 1.5);
        context.fillRect(x, y, w, h);
        if (trace.write[i]) { context.strokeStyle = dark; context.lineWidth = 0.6; context.strokeRect(x, y, w, h); }
      } else {
        // The upper half of a rank's band is for reads, the lower one for writes.
        const y = top + trace.rank[i] * band + (trace.write[i] ? band / 2 : 0);
        context.fillRect(x, y, w, Math.max(band / 2 - 0.3, 0.8));
      }
    }
    context.strokeStyle = colour("--soft");
    context.lineWidth = 1;
    context.strokeRect(left - 0.5, top - 0.5, plot + 1, tall + 1);
    context.fillStyle = colour("--soft");
    context.textAlign = "right";
    context.textBaseline = "middle";
    if (byOffset) {
      for (const part of [0, 0.25, 0.5, 0.75, 1]) context.fillText(bytes(least + high * part), left - 6, top + tall * (1 - part));
    } else {
      const every = Math.ceil(job.ranks / Math.floor(tall / 18));
      for (let rank = 0; rank < job.ranks; rank += every) context.fillText(rankName(rank, job).slice(0, 13), left - 6, top + (rank + 0.5) * band);
    }
    timeAxis(context, left, plot, top + tall, long, width, shown ? "+" : "");
    if (drag) {
      context.globalAlpha = 0.25;
      context.fillStyle = colour("--ink");
      context.fillRect(Math.min(drag.first, drag.last), top, Math.abs(drag.last - drag.first), tall);
      context.globalAlpha = 1;
    }
    rule.textContent = number(chosen.length) + (chosen.length === 1 ? " request drawn" : " requests drawn") +
      (shown ? ", from " + from.toFixed(6) + " s on, for " + seconds(long) : "") + ". " + trace.rule;
  }

  // Shows this part of the run; as much of it as there is, and no less than a microsecond.
  function show(from, to) {
    const long = Math.min(Math.max(to - from, 1e-6), end);
    const first = Math.max(0, Math.min(from, end - long));
    shown = long >= end ? null : { from: first, to: first + long };
    draw();
    readout.textContent = shown ? "From " + shown.from.toFixed(6) + " s to " + shown.to.toFixed(6) + " s" : "The whole run";
  }
  const acts = {
    in: (from, long) => show(from + long / 4, from + long * 3 / 4),
    out: (from, long) => show(from - long / 2, from + long * 3 / 2),
    earlier: (from, long) => show(from - long / 4, from + long * 3 / 4),
    later: (from, long) => show(from + long / 4, from + long * 5 / 4),
    first: (from, long) => show(0, long),
    last: (from, long) => show(end - long, end),
    all: () => show(0, end),
  };
  function act(name) {
    const { from, to } = shown || { from: 0, to: end };
    acts[name](from, to - from);
  }
  const keys = { "+": "in", "=": "in", "-": "out", ArrowLeft: "earlier", ArrowRight: "later", Home: "first", End: "last", 0: "all", Escape: "all" };
  canvas.addEventListener("keydown", (event) => {
    const name = keys[event.key];
    if (!name || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    act(name);
  });
  for (const button of root.querySelectorAll("[data-zoom]")) button.addEventListener("click", () => act(button.dataset.zoom));
  const place = (event) => {
    const x = event.clientX - canvas.getBoundingClientRect().left;
    return Math.max(left, Math.min(left + plot, x));
  };
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    drag = { first: place(event), last: place(event) };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!drag) return;
    drag.last = place(event);
    draw();
  });
  canvas.addEventListener("pointerup", () => {
    if (!drag) return;
    const [a, b] = [drag.first, drag.last].sort((x, y) => x - y);
    drag = null;
    const { from, to } = shown || { from: 0, to: end };
    const at = (x) => from + ((x - left) / plot) * (to - from);
    // Less than that is a click.
    if (b - a > 4) show(at(a), at(b)); else draw();
  });
  canvas.addEventListener("pointercancel", () => { drag = null; draw(); });
  pickTrace.addEventListener("change", () => { shown = null; readout.textContent = ""; fillFiles(); draw(); });
  for (const control of [pickView, pickFile]) control.addEventListener("change", draw);
  fillFiles();
  drawings.push(draw);
  draw();
}

if (byId("trace-view")) traceView(byId("trace-view"), data.traces);
