// Traced requests: rank over time, or offset in one file over time. Reads are full lines, writes are lighter and dashed
// by a gap, so that they can be told apart without colour.
function traceView(root, traces) {
  const canvas = root.querySelector("canvas");
  const pickTrace = root.querySelector("select.trace");
  const pickView = root.querySelector("select.view");
  const pickFile = root.querySelector("select.file");
  const rule = root.querySelector(".rule");
  const left = 84, right = 12, top = 10, bottom = 26, tall = 280;
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
    const plot = width - left - right;
    const chosen = [];
    let end = 0, most = 1;
    for (let i = 0; i < trace.rank.length; i += 1) {
      end = Math.max(end, trace.end[i]);
      if (file !== null && trace.file[i] !== file) continue;
      if (byOffset && trace.offset[i] < 0) continue;
      chosen.push(i);
      if (byOffset) most = Math.max(most, trace.offset[i] + trace.length[i]);
    }
    end = end || 1;
    const band = tall / Math.max(1, data.ranks);
    const dark = colour("--bar-dark"), mid = colour("--bar-mid");
    for (const i of chosen) {
      const x = left + (trace.start[i] / end) * plot;
      const w = Math.max(((trace.end[i] - trace.start[i]) / end) * plot, 1.2);
      context.fillStyle = trace.write[i] ? mid : dark;
      if (byOffset) {
        const y = top + tall - ((trace.offset[i] + trace.length[i]) / most) * tall;
        const h = Math.max((trace.length[i] / most) * tall, 1.5);
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
      for (const part of [0, 0.25, 0.5, 0.75, 1]) context.fillText(bytes(most * part), left - 6, top + tall * (1 - part));
    } else {
      const every = Math.ceil(data.ranks / Math.floor(tall / 18));
      for (let rank = 0; rank < data.ranks; rank += every) context.fillText("rank " + rank, left - 6, top + (rank + 0.5) * band);
    }
    timeAxis(context, left, plot, top + tall, end, width);
    rule.textContent = number(chosen.length) + " requests drawn. " + trace.rule;
  }
  pickTrace.addEventListener("change", () => { fillFiles(); draw(); });
  for (const control of [pickView, pickFile]) control.addEventListener("change", draw);
  fillFiles();
  drawings.push(draw);
  draw();
}

if (byId("trace-view")) traceView(byId("trace-view"), data.traces);
