// The table of all files: search, sort, pages. Only the rows of one page are in the document.
function fileTable(files, uses) {
  const perPage = 50;
  const count = files.base.length;
  const name = (i) => files.dirs[files.dir[i]] + files.base[i];
  const lower = Array.from({ length: count }, (_, i) => name(i).toLowerCase());
  const classes = ["unique", "shared", "partly"];
  const columns = {
    name: (i) => lower[i], sharing: (i) => files.sharing[i], ranks: (i) => files.ranks[i],
    read: (i) => files.read[i], written: (i) => files.written[i], ops: (i) => files.ops[i],
    opens: (i) => files.opens[i], seconds: (i) => files.seconds[i], slowest: (i) => files.slowest[i],
  };
  let sort = { key: "seconds", down: true };
  let shown = [];
  let page = 0;
  const opened = new Set();
  const firstUse = new Map();
  uses.file.forEach((file, at) => { if (!firstUse.has(file)) firstUse.set(file, at); });

  function choose() {
    const words = byId("file-search").value.toLowerCase().split(/\s+/).filter(Boolean);
    shown = [];
    for (let i = 0; i < count; i += 1) {
      if (words.every((word) => lower[i].includes(word))) shown.push(i);
    }
    const key = columns[sort.key];
    const way = sort.down ? -1 : 1;
    shown.sort((a, b) => {
      const x = key(a), y = key(b);
      return (x < y ? -way : x > y ? way : 0) || a - b;
    });
    page = 0;
    show();
  }

  function detail(i) {
    const table = element("table", {},
      element("thead", {}, element("tr", {}, ...["interface", "reads", "read", "writes", "written", "opens", "stats", "seeks",
        "fsyncs", "reading", "writing", "metadata"].map((text) => element("th", { scope: "col" }, text)))));
    const body = element("tbody");
    for (let at = firstUse.get(i); at !== undefined && uses.file[at] === i; at += 1) {
      body.append(element("tr", {}, ...[
        data.interfaces[uses.interface[at]], number(uses.reads[at]), bytes(uses.bytes_read[at]), number(uses.writes[at]),
        bytes(uses.bytes_written[at]), number(uses.opens[at]), number(uses.stats[at]), number(uses.seeks[at]),
        number(uses.syncs[at]), seconds(uses.read_seconds[at]), seconds(uses.write_seconds[at]),
        seconds(uses.meta_seconds[at]),
      ].map((text) => element("td", {}, text))));
    }
    table.append(body);
    const facts = [files.fs[i] >= 0 ? "file system " + files.types[files.fs[i]] : "file system unknown"];
    if (files.stripes[i]) facts.push("stripes of " + bytes(files.stripes[i][0]) + " on " + files.stripes[i][1] + " targets");
    if (files.created[i] !== null) facts.push(files.created[i] ? "created by the job" : "existed before");
    if (files.size_at_open[i] !== null) facts.push(bytes(files.size_at_open[i]) + " at first open");
    facts.push("times are sums over all " + data.jobs[0].many);
    return element("tr", { class: "details" }, element("td", { colspan: "9" }, element("p", {}, facts.join("; ")), table));
  }

  function row(i) {
    const open = element("button", { class: "open name", type: "button", "aria-expanded": opened.has(i) ? "true" : "false" }, name(i));
    const made = element("tr", {},
      element("td", { class: "name" }, open),
      ...[classes[files.sharing[i]], number(files.ranks[i]), bytes(files.read[i]), bytes(files.written[i]), number(files.ops[i]),
        number(files.opens[i]), seconds(files.seconds[i]), files.slowest[i] < 0 ? "-" : String(files.slowest[i])]
        .map((text) => element("td", {}, text)));
    open.addEventListener("click", () => {
      if (opened.delete(i)) made.nextElementSibling.remove();
      else { opened.add(i); made.after(detail(i)); }
      open.setAttribute("aria-expanded", opened.has(i) ? "true" : "false");
    });
    return opened.has(i) ? [made, detail(i)] : [made];
  }

  function show() {
    const pages = Math.max(1, Math.ceil(shown.length / perPage));
    page = Math.max(0, Math.min(page, pages - 1));
    byId("file-rows").replaceChildren(...shown.slice(page * perPage, (page + 1) * perPage).flatMap(row));
    byId("file-status").textContent = number(shown.length) + " of " + number(count) + " files, page " + number(page + 1) + " of " + number(pages);
    byId("file-previous").disabled = page === 0;
    byId("file-next").disabled = page === pages - 1;
    for (const head of document.querySelectorAll("#file-table th[data-key]")) {
      const state = head.dataset.key === sort.key ? (sort.down ? "descending" : "ascending") : "none";
      head.setAttribute("aria-sort", state);
    }
  }

  let timer = 0;
  byId("file-search").addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(choose, count > 20000 ? 120 : 0); });
  for (const head of document.querySelectorAll("#file-table th[data-key]")) {
    head.querySelector("button").addEventListener("click", () => {
      const key = head.dataset.key;
      sort = { key, down: sort.key === key ? !sort.down : key !== "name" && key !== "sharing" };
      choose();
    });
  }
  byId("file-previous").addEventListener("click", () => { page -= 1; show(); });
  byId("file-next").addEventListener("click", () => { page += 1; show(); });
  choose();
}

if (byId("file-table")) fileTable(data.files, data.uses);
