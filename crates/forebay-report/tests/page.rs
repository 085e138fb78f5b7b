//! The page in a real browser.

mod chromium;
mod common;

use chromium::Browser;
use common::{Sketch, full_job};
use forebay_report::compare;
use serde_json::{Value, json};
use std::path::PathBuf;

/// A browser that shows a page; `None`, with the reason printed, if no browser is installed.
fn browser_on(html: &str) -> Option<(Browser, tempfile::TempDir, PathBuf)> {
    let mut browser = chromium::start()?;
    let dir = tempfile::tempdir().unwrap();
    let page = dir.path().join("report.html");
    std::fs::write(&page, html).unwrap();
    browser.open(&page);
    Some((browser, dir, page))
}

/// How many different colours a canvas shows.
fn colours(browser: &mut Browser, canvas: &str) -> u64 {
    let count = browser.eval(&format!(
        "(() => {{ const c = document.querySelectorAll({canvas:?})[0]; \
         const p = c.getContext('2d').getImageData(0, 0, c.width, c.height).data; const all = new Set(); \
         for (let i = 0; i < p.length; i += 4) all.add(p[i] << 24 | p[i+1] << 16 | p[i+2] << 8 | p[i+3]); \
         return all.size; }})()"
    ));
    count.as_u64().unwrap()
}

fn text(browser: &mut Browser, selector: &str) -> String {
    let text = browser.eval(&format!("document.querySelector({selector:?}).textContent"));
    // Numbers and their units are held together.
    text.as_str().unwrap().replace('\u{a0}', " ")
}

#[test]
fn a_page_full_of_hostile_names_opens_quietly_and_asks_nobody() {
    let report = full_job().report();
    let Some((mut browser, _dir, page)) = browser_on(&report.html()) else {
        return;
    };
    browser.wait_for("document.querySelectorAll('#file-rows tr').length > 0");
    assert_eq!(browser.troubles(), Vec::<&Value>::new());
    let own = format!("file://{}", page.display());
    let foreign: Vec<String> = browser
        .requests()
        .into_iter()
        .filter(|url| *url != own && !url.starts_with("data:"))
        .collect();
    assert_eq!(foreign, Vec::<String>::new());
    // Names are text: no element that a name holds exists, and one script beside the data.
    assert_eq!(
        browser.eval("document.querySelectorAll('img, svg[onload], main script').length"),
        0
    );
    assert_eq!(browser.eval("document.scripts.length"), 2);
    browser.eval(
        "(() => { const i = document.getElementById('file-search'); i.value = '</script>'; \
                  i.dispatchEvent(new Event('input')); })()",
    );
    browser.wait_for("document.querySelectorAll('#file-rows tr').length === 1");
    let name = text(&mut browser, "#file-rows button.open");
    assert_eq!(name, "/pfs/</script><script>alert(1)</script>");
    assert_eq!(browser.troubles(), Vec::<&Value>::new());
}

#[test]
fn the_policy_of_the_page_stops_scripts_that_it_does_not_name() {
    let report = full_job().report();
    let Some((mut browser, ..)) = browser_on(&report.html()) else {
        return;
    };
    browser.eval("(() => { const s = document.createElement('script'); s.textContent = 'window.intruder = 1'; \
                  document.body.append(s); const i = new Image(); i.src = 'http://192.0.2.1/x.png'; \
                  document.body.append(i); })()");
    assert_eq!(browser.eval("typeof window.intruder"), "undefined");
    assert!(
        !browser.troubles().is_empty(),
        "the policy should have spoken"
    );
}

#[test]
fn the_table_of_files_is_searched_sorted_and_opened_by_keyboard() {
    let report = full_job().report();
    let files = report
        .job
        .files
        .iter()
        .filter(|file| !file.is_std_stream)
        .count();
    let Some((mut browser, ..)) = browser_on(&report.html()) else {
        return;
    };
    browser.wait_for("document.querySelectorAll('#file-rows tr').length === 50");
    assert!(text(&mut browser, "#file-status").starts_with(&format!("{files} of {files} files")));
    browser.eval("document.getElementById('file-search').focus()");
    browser.type_text("part.3. RUN");
    browser.wait_for("document.querySelectorAll('#file-rows tr').length === 20");
    // From the search field by Tab to the headings; the first one sorts by name.
    let reached = (0..6).any(|_| {
        browser.press("Tab");
        browser.eval("document.activeElement.closest('th')?.dataset.key") == "name"
    });
    assert!(reached, "headings can't be reached by Tab");
    browser.press("Enter");
    browser.wait_for(
        "document.querySelector('#file-rows button.open').textContent.endsWith('part.3.00')",
    );
    assert_eq!(
        browser.eval("document.querySelector('th[data-key=name]').getAttribute('aria-sort')"),
        "ascending"
    );
    browser.press("Enter");
    browser.wait_for(
        "document.querySelector('#file-rows button.open').textContent.endsWith('part.3.19')",
    );
    assert_eq!(
        browser.eval("document.querySelector('th[data-key=name]').getAttribute('aria-sort')"),
        "descending"
    );
    browser.eval("document.querySelector('#file-rows button.open').focus()");
    browser.press("Enter");
    browser.wait_for("document.querySelectorAll('#file-rows tr.details').length === 1");
    let details = text(&mut browser, "#file-rows tr.details");
    assert!(
        details.contains("POSIX") && details.contains("lustre") && details.contains("4.0 MiB"),
        "{details}"
    );
    assert_eq!(browser.troubles(), Vec::<&Value>::new());
}

#[test]
fn the_heat_map_is_drawn_and_can_be_read_by_arrow_keys() {
    let report = full_job().report();
    let Some((mut browser, ..)) = browser_on(&report.html()) else {
        return;
    };
    assert!(
        colours(&mut browser, "[data-heatmap] canvas") > 8,
        "the heat map is blank"
    );
    browser.eval(
        "(() => { const s = document.querySelector('select.line'); \
         s.value = [...s.options].find((o) => o.text === 'POSIX').value; s.dispatchEvent(new Event('change')); })()",
    );
    assert!(text(&mut browser, ".source").contains("recorded while the job ran"));
    browser.eval("document.querySelector('[data-heatmap] canvas').focus()");
    for key in ["ArrowDown", "ArrowRight", "ArrowRight"] {
        browser.press(key);
    }
    // Rank 1 begins in the second bin of 2 s, with 1 MiB, then 2 MiB.
    let readout = text(&mut browser, "[data-heatmap] output");
    assert_eq!(readout, "rank 1, 4.0 s to 6.0 s: 2.0 MiB");
    let both = colours(&mut browser, "[data-heatmap] canvas");
    browser.eval(
        "(() => { const s = document.querySelector('select.way'); s.value = 'read'; \
                  s.dispatchEvent(new Event('change')); })()",
    );
    assert_ne!(colours(&mut browser, "[data-heatmap] canvas"), both);
    assert_eq!(browser.troubles(), Vec::<&Value>::new());
}

/// The texts that a heat map writes when it is drawn.
fn written(browser: &mut Browser) -> Vec<String> {
    let texts = browser.eval(
        "(() => { const all = []; const of = CanvasRenderingContext2D.prototype; const real = of.fillText; \
         of.fillText = function (text, ...at) { if (this.canvas.closest('[data-heatmap]')) all.push(text); \
         return real.call(this, text, ...at); }; redraw(); of.fillText = real; return all; })()",
    );
    let texts = texts.as_array().unwrap().iter();
    texts
        .map(|one| one.as_str().unwrap().replace('\u{a0}', " "))
        .collect()
}

#[test]
fn the_shades_of_the_heat_map_are_told_below_it_in_both_scales() {
    let report = full_job().report();
    let Some((mut browser, ..)) = browser_on(&report.html()) else {
        return;
    };
    browser.eval(
        "(() => { const s = document.querySelector('select.line'); \
         s.value = [...s.options].find((o) => o.text === 'POSIX').value; s.dispatchEvent(new Event('change')); })()",
    );
    // The values of the bar stand behind its name: nothing, then from the most down.
    let bar = |browser: &mut Browser| {
        let mut texts = written(browser);
        let name = texts.iter().position(|text| text == "bytes in a cell");
        texts.split_off(name.expect("a bar of shades") + 1)
    };
    let most = text(&mut browser, ".source");
    let most = most.split("most in a cell ").nth(1).unwrap();
    let most = most.split(';').next().unwrap();
    let logarithmic = bar(&mut browser);
    assert_eq!(logarithmic[..2], ["0", most]);
    // A mebibyte would touch the label of the most.
    assert_eq!(logarithmic[2..].join(" "), "1.0 KiB 1 B");
    // A column of the bar is darker than the one at its left, in the middle of its height.
    let ramp = "(() => { const c = document.querySelector('[data-heatmap] canvas'); const y = c.height - 26; \
                const p = c.getContext('2d').getImageData(90, y, 200, 1).data; let n = 0; \
                for (let i = 4; i < p.length; i += 4) if (p[i] > p[i - 4]) n += 1; \
                return [n, p[0] - p[p.length - 4]]; })()";
    let seen = browser.eval(ramp);
    assert_eq!(seen[0], 0, "the bar gets lighter somewhere");
    assert!(seen[1].as_i64().unwrap() > 80, "{seen}");
    browser.eval(
        "(() => { const s = document.querySelector('select.scale'); s.value = 'linear'; \
                  s.dispatchEvent(new Event('change')); })()",
    );
    let linear = bar(&mut browser);
    assert_eq!(linear[..2], ["0", most]);
    assert_ne!(linear, logarithmic);
    assert!(text(&mut browser, ".source").ends_with("shades linear"));
    // By keyboard, a mark shows where the value of the chosen cell is.
    let marked = "(() => { const c = document.querySelector('[data-heatmap] canvas'); const found = colour('--cursor'); \
                  const [r, g, b] = channels(found); const p = c.getContext('2d').getImageData(0, c.height - 42, c.width, 14).data; \
                  for (let i = 0; i < p.length; i += 4) if (p[i] === r && p[i+1] === g && p[i+2] === b) return true; \
                  return false; })()";
    assert_eq!(browser.eval(marked), false);
    browser.eval("document.querySelector('[data-heatmap] canvas').focus()");
    browser.press("ArrowRight");
    assert_eq!(browser.eval(marked), true);
    assert_eq!(browser.troubles(), Vec::<&Value>::new());
}

#[test]
fn the_trace_is_drawn_by_rank_and_by_offset() {
    let report = full_job().report();
    let Some((mut browser, ..)) = browser_on(&report.html()) else {
        return;
    };
    assert!(
        colours(&mut browser, "#trace-view canvas") > 2,
        "the trace is blank"
    );
    assert!(text(&mut browser, "#trace-view .rule").starts_with("2,000 requests drawn. All 2,000"));
    browser.eval(
        "(() => { const s = document.querySelector('select.view'); s.value = 'offset'; \
                  s.dispatchEvent(new Event('change')); })()",
    );
    assert!(
        colours(&mut browser, "#trace-view canvas") > 2,
        "the view by offset is blank"
    );
    assert_eq!(browser.troubles(), Vec::<&Value>::new());
}

#[test]
fn a_part_of_the_trace_is_enlarged_by_keys_buttons_and_the_pointer() {
    let report = full_job().report();
    let Some((mut browser, ..)) = browser_on(&report.html()) else {
        return;
    };
    let drawn = |browser: &mut Browser| {
        let text = text(browser, "#trace-view .rule");
        let number = text.split(' ').next().unwrap().replace(',', "");
        number.parse::<u64>().unwrap()
    };
    assert_eq!(drawn(&mut browser), 2_000);
    browser.eval("document.querySelector('#trace-view canvas').focus()");
    let key = |browser: &mut Browser, key: &str| {
        browser.eval(&format!(
            "document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {{ key: {key:?} }}))"
        ));
        drawn(browser)
    };
    let half = key(&mut browser, "+");
    assert!((1..2_000).contains(&half), "{half}");
    let less = key(&mut browser, "+");
    assert!(less < half, "{less} of {half}");
    assert!(text(&mut browser, "#trace-view output").starts_with("From "));
    key(&mut browser, "Home");
    assert!(text(&mut browser, "#trace-view output").starts_with("From 0.000000 s"));
    key(&mut browser, "ArrowRight");
    assert!(!text(&mut browser, "#trace-view output").starts_with("From 0.000000 s"));
    assert!(key(&mut browser, "-") > less);
    assert_eq!(key(&mut browser, "0"), 2_000);
    browser.eval("document.querySelector('#trace-view [data-zoom=in]').click()");
    assert_eq!(drawn(&mut browser), half);
    browser.eval("document.querySelector('#trace-view [data-zoom=all]').click()");
    browser.eval(
        "(() => { const c = document.querySelector('#trace-view canvas'); c.setPointerCapture = () => {}; \
         const box = c.getBoundingClientRect(); const at = (kind, x) => c.dispatchEvent(new PointerEvent(kind, \
         { clientX: box.left + x, clientY: box.top + 50, button: 0, pointerId: 1 })); \
         at('pointerdown', 100); at('pointermove', 160); at('pointerup', 200); })()",
    );
    assert!((1..2_000).contains(&drawn(&mut browser)));
    assert!(colours(&mut browser, "#trace-view canvas") > 2);
    assert_eq!(browser.troubles(), Vec::<&Value>::new());
}

#[test]
fn tab_goes_through_the_page_in_reading_order() {
    let report = full_job().report();
    let Some((mut browser, ..)) = browser_on(&report.html()) else {
        return;
    };
    browser.wait_for("document.querySelectorAll('#file-rows tr').length === 50");
    let mut stops: Vec<String> = Vec::new();
    browser.eval("window.before = document.body");
    for _ in 0..40 {
        browser.press("Tab");
        let is_later = browser.eval(
            "(() => { const now = document.activeElement; const later = window.before === document.body || \
             Boolean(window.before.compareDocumentPosition(now) & Node.DOCUMENT_POSITION_FOLLOWING); \
             window.before = now; return later; })()",
        );
        let stop = browser.eval(
            "document.activeElement.id || document.activeElement.className || \
             document.activeElement.getAttribute('href') || document.activeElement.tagName",
        );
        let stop = stop.as_str().unwrap().to_owned();
        assert_eq!(is_later, true, "{stop} comes after {stops:?}");
        stops.push(stop);
    }
    assert_eq!(stops[0], "skip");
    assert_eq!(stops[1], "#pictures");
    for wanted in ["SUMMARY", "line", "CANVAS", "file-search"] {
        assert!(
            stops.iter().any(|stop| stop == wanted),
            "{wanted} can't be reached: {stops:?}"
        );
    }
}

#[test]
fn of_a_hundred_thousand_files_the_costly_ones_are_searched_and_paged() {
    let mut sketch = Sketch::new(4, "manyfiles");
    sketch.names = (0..100_000)
        .map(|i| format!("/pfs/data/d{}/file.{i:06}", i / 1000).into_bytes())
        .collect();
    let mut record = darshan_log::Record::<darshan_log::Posix>::new(0, 0);
    record.set(darshan_log::counters::posix::Counter::Opens, 1);
    for (i, name) in sketch.names.iter().enumerate() {
        record.id = darshan_log::record_id(name);
        record.rank = (i % 4) as i64;
        // The table holds those with most bytes.
        let bytes = i64::from(i < 5_000);
        record.set(darshan_log::counters::posix::Counter::Writes, bytes);
        record.set(darshan_log::counters::posix::Counter::BytesWritten, bytes);
        sketch.posix.push(record);
    }
    let report = sketch.report();
    let html = report.html();
    let Some((mut browser, ..)) = browser_on(&html) else {
        return;
    };
    browser.wait_for("document.querySelectorAll('#file-rows tr').length === 50");
    assert_eq!(
        text(&mut browser, "#file-status"),
        "5,000 of 5,000 files, page 1 of 100"
    );
    assert!(text(&mut browser, "#files .hint").contains("95,000 more are left out here"));
    // The sums count all of them, and the page stays small.
    assert_eq!(
        report
            .plots()
            .directories
            .iter()
            .map(|one| one.files)
            .sum::<u64>(),
        100_000
    );
    assert!(html.len() < 1 << 20, "{} bytes", html.len());
    browser.eval("document.getElementById('file-search').focus()");
    browser.type_text("d4/ .0047");
    browser.wait_for("document.getElementById('file-status').textContent.startsWith('100 of')");
    browser.eval("document.getElementById('file-next').click()");
    assert_eq!(
        text(&mut browser, "#file-status"),
        "100 of 5,000 files, page 2 of 2"
    );
    assert_eq!(browser.troubles(), Vec::<&Value>::new());
}

#[test]
fn the_printed_page_keeps_what_matters_and_needs_no_colour() {
    let report = full_job().report();
    let Some((mut browser, ..)) = browser_on(&report.html()) else {
        return;
    };
    keep("report.png", &browser.screenshot());
    browser.call("Emulation.setEmulatedMedia", json!({"media": "print"}));
    browser.call(
        "Emulation.setEmulatedVisionDeficiency",
        json!({"type": "achromatopsia"}),
    );
    assert_eq!(
        browser.eval("getComputedStyle(document.querySelector('nav')).display"),
        "none"
    );
    assert_eq!(
        browser.eval("getComputedStyle(document.querySelector('#files')).display"),
        "none"
    );
    assert_ne!(
        browser.eval("getComputedStyle(document.querySelector('canvas')).display"),
        "none"
    );
    browser.wait_for(
        "getComputedStyle(document.documentElement).getPropertyValue('--heat-1').trim() === '#000'",
    );
    browser.eval("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))");
    // Only greys are drawn for paper.
    let colourful = browser.eval(
        "(() => { const c = document.querySelector('canvas'); \
         const p = c.getContext('2d').getImageData(0, 0, c.width, c.height).data; let n = 0; \
         for (let i = 0; i < p.length; i += 4) if (p[i+3] > 0 && Math.max(p[i], p[i+1], p[i+2]) - \
         Math.min(p[i], p[i+1], p[i+2]) > 2) n += 1; return n; })()",
    );
    assert_eq!(colourful, 0);
    keep("print.png", &browser.screenshot());
    assert_eq!(browser.troubles(), Vec::<&Value>::new());
}

#[test]
fn paper_has_whole_tables_and_what_was_closed_on_the_screen() {
    let mut sketch = full_job();
    let long = format!("/pfs/{}/{}.h5", "d".repeat(180), "checkpoint_".repeat(20));
    sketch.own_file(long.as_bytes(), 3, 900_000, 512);
    let Some((mut browser, ..)) = browser_on(&sketch.report().html()) else {
        return;
    };
    // The width of A4 between the margins of a browser.
    browser.window(718, 1000);
    browser.call("Emulation.setEmulatedMedia", json!({"media": "print"}));
    let closed = "document.querySelectorAll('details:not([open])').length";
    let before = browser.eval(closed);
    assert!(before.as_u64().unwrap() > 0);
    browser.eval("window.dispatchEvent(new Event('beforeprint'))");
    assert_eq!(browser.eval(closed), 0);
    let cut = browser.eval(
        "[...document.querySelectorAll('.scroll')].filter((one) => one.scrollWidth > one.clientWidth) \
         .map((one) => one.scrollWidth + ' of ' + one.clientWidth + ': ' + one.textContent.slice(0, 80))",
    );
    assert_eq!(cut, json!([]));
    browser.eval("window.dispatchEvent(new Event('afterprint'))");
    assert_eq!(browser.eval(closed), before);
}

#[test]
fn no_line_breaks_between_a_number_and_its_unit() {
    let mut sketch = full_job();
    sketch.shared_file(b"/pfs/all", 900_000, 512);
    let report = sketch.report();
    let both = compare(&report, &report).html();
    for html in [report.html(), both] {
        let Some((mut browser, ..)) = browser_on(&html) else {
            return;
        };
        // An ordinary blank is a place to break at. Names and commands keep theirs; text in SVG has one line.
        let breakable = browser.eval(
            "(() => { const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT); const found = []; \
             while (walk.nextNode()) { const node = walk.currentNode; \
             if (node.parentElement.closest('script, noscript, svg, code, .name, option')) continue; \
             if (/\\d ([KMGTPE]iB|B|us|ms|s|min|h|%)(\\/s)?(?![A-Za-z])|[<>] \\d/.test(node.data)) found.push(node.data); } \
             return found; })()",
        );
        assert_eq!(breakable, json!([]));
    }
}

#[test]
fn bars_of_one_list_have_the_same_length_for_the_whole_scale() {
    let report = full_job().report();
    let Some((mut browser, ..)) = browser_on(&report.html()) else {
        return;
    };
    for width in [1366, 390] {
        browser.window(width, 900);
        let uneven = browser.eval(
            "[...document.querySelectorAll('.picture, .bars')].filter((list) => { \
             const wide = [...list.querySelectorAll(':scope > .bar-row > svg')].map((bar) => Math.round(bar.getBoundingClientRect().width)); \
             return new Set(wide).size > 1 || wide.includes(0); }).map((list) => list.textContent.slice(0, 60))",
        );
        assert_eq!(uneven, json!([]), "at {width} pixels");
    }
}

#[test]
fn a_laptop_window_and_that_of_a_phone_need_no_sideways_scrolling() {
    let mut sketch = full_job();
    // Names without a place to break a line at.
    let long = format!("/pfs/{}/{}.h5", "d".repeat(180), "checkpoint_".repeat(20));
    sketch.own_file(long.as_bytes(), 3, 900_000, 512);
    sketch.trace(long.as_bytes(), 200);
    sketch.exe = format!("/home/me/{} --mesh", "x".repeat(300));
    let report = sketch.report();
    let both = compare(&report, &report).html();
    for html in [report.html(), both] {
        let Some((mut browser, ..)) = browser_on(&html) else {
            return;
        };
        browser.eval("for (const one of document.querySelectorAll('details')) one.open = true");
        for (width, height) in [(1366, 768), (800, 600), (500, 900), (390, 844)] {
            browser.window(width, height);
            let wider = browser.eval(
                "document.documentElement.scrollWidth - document.documentElement.clientWidth",
            );
            assert_eq!(wider, 0, "at {width} pixels");
        }
    }
}

#[test]
fn the_first_screen_of_a_phone_has_a_plot_and_names_of_files_are_not_broken_into_pieces() {
    let mut sketch = full_job();
    sketch.exe = format!("/home/me/sim {}", "--level 7 ".repeat(350));
    let Some((mut browser, ..)) = browser_on(&sketch.report().html()) else {
        return;
    };
    browser.window(390, 844);
    let top = browser
        .eval("document.querySelector('.pictures svg.plot').getBoundingClientRect().top + scrollY");
    assert!(top.as_f64().unwrap() < 760.0, "the first plot is at {top}");
    let narrow = browser.eval(
        "Math.min(...[...document.querySelectorAll('.wide td.name')].map((one) => one.clientWidth))",
    );
    assert!(narrow.as_f64().unwrap() >= 200.0, "{narrow} pixels");
    // The whole command is there, on request.
    let whole = text(&mut browser, ".command code");
    assert!(sketch.exe.starts_with(&whole) && whole.len() > 3000);
    let heading = text(&mut browser, "h1");
    assert!(heading.len() < 200, "{heading}");
}

#[test]
fn a_comparison_draws_both_heat_maps() {
    let (before, mut after) = (full_job(), full_job());
    after.posix.truncate(20);
    after.job.end.sec -= 20;
    let (before, after) = (before.report(), after.report());
    let Some((mut browser, ..)) = browser_on(&compare(&before, &after).html()) else {
        return;
    };
    assert_eq!(
        browser.eval("document.querySelectorAll('[data-heatmap] canvas').length"),
        2
    );
    assert!(colours(&mut browser, "[data-heatmap='0'] canvas") > 4);
    assert!(colours(&mut browser, "[data-heatmap='1'] canvas") > 4);
    keep("compare.png", &browser.screenshot());
    assert_eq!(browser.troubles(), Vec::<&Value>::new());
}

/// Keeps a picture for people, in the directory that FOREBAY_SCREENSHOTS names, if it is set.
fn keep(name: &str, png: &[u8]) {
    assert!(
        png.starts_with(b"\x89PNG") && png.len() > 10_000,
        "{name} shows nothing"
    );
    if let Some(dir) = std::env::var_os("FOREBAY_SCREENSHOTS") {
        std::fs::write(PathBuf::from(dir).join(name), png).unwrap();
    }
}
