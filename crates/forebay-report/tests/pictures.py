"""Reads a page as a stranger: with Python's HTML and XML parsers. Compares what it draws and says with the JSON report.

    pictures.py PAGE.html REPORT.json      (the JSON is one report, or an array with one)

Every SVG must be XML. Every element that names a place in the JSON (data-json) must hold the value that is there, every
bar must be as long as its value, and the text of every number must be the value, rounded.
Prints how many bars and numbers it has compared.
"""

import html.parser
import json
import re
import sys
import xml.etree.ElementTree as xml

LEAST = {"height": 1.0, "width": 0.4}
UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "B": 1}
UNITS.update({p + "iB": 1024 ** (i + 1) for i, p in enumerate("KMGTPE")})


def at(report, pointer):
    for part in pointer.strip("/").split("/"):
        report = report[int(part)] if isinstance(report, list) else report[part]
    return report


def number_of(text):
    """The value that a text tells, and by how much rounding may have changed it."""
    text = text.replace("\u00a0", " ").strip()
    clock = re.fullmatch(r"(\d+) (min|h) (\d+) (s|min)", text)
    if clock:
        unit = 60 if clock[2] == "min" else 3600
        return int(clock[1]) * unit + int(clock[3]) * unit / 60, unit / 60
    plain = re.fullmatch(r"([\d,]+(?:\.\d+)?)(?: (\w+))?", text)
    assert plain, f"{text!r} is no number"
    digits = plain[1].replace(",", "")
    unit = UNITS[plain[2]] if plain[2] else 1
    step = 10.0 ** -len(digits.partition(".")[2])
    return float(digits) * unit, step * unit


class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.numbers, self.ids, self.scripts, self.reading = [], [], [], [], None

    VOID = {"meta", "link", "input", "br", "hr", "img", "line", "circle"}

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        for name, text in attrs.items():
            assert not name.startswith("on"), f"{tag} has {name}"
            if name in ("src", "href") and tag != "a" and text != "data:,":
                raise AssertionError(f"{tag} asks for {text}")
        if "id" in attrs:
            self.ids.append(attrs["id"])
        if tag == "data":
            self.reading = [attrs["data-json"], attrs["value"], ""]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag in self.VOID:
            return
        # HTML lets these be left open.
        while self.open and self.open[-1] != tag and self.open[-1] in {"p", "li", "option", "td", "tr"}:
            self.open.pop()
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-1:]}"
        self.open.pop()
        if tag == "data":
            self.numbers.append(self.reading)
            self.reading = None

    def handle_data(self, text):
        if self.reading:
            self.reading[2] += text


def length(text):
    return float(text.rstrip("%"))


def compare(report, text):
    page = Page()
    page.feed(text)
    page.close()
    assert page.open == [], page.open
    assert len(set(page.ids)) == len(page.ids), "an id stands twice"

    for pointer, value, shown in page.numbers:
        expected = float(at(report, pointer))
        assert float(value) == expected, f"{pointer}: {value} is not {expected}"
        told, step = number_of(shown)
        assert abs(told - expected) <= step * 0.5001 + abs(expected) * 1e-9, f"{pointer}: {shown!r} is not {expected}"

    bars = 0
    for svg in pictures(re.sub(r"<script\b.*?</script>", "", text, flags=re.S)):
        bars += bars_of(report, xml.fromstring(svg))
    return bars, len(page.numbers)


def pictures(text):
    """The outermost SVG elements."""
    depth, start = 0, 0
    for tag in re.finditer(r"<svg\b|</svg>", text):
        if tag[0] == "</svg>":
            depth -= 1
            if depth == 0:
                yield text[start : tag.end()]
        else:
            if depth == 0:
                start = tag.start()
            depth += 1
    assert depth == 0


def bars_of(report, svg):
    count = 0
    for group in svg.iter("g"):
        side = group.get("data-side")
        if side is None:
            continue
        scale = float(group.get("data-scale"))
        for bar in group.iter("rect"):
            pointer = bar.get("data-json")
            if pointer is None:
                continue
            value = float(bar.get("data-value"))
            expected = float(at(report, pointer))
            assert value == expected, f"{pointer}: {value} is not {expected}"
            drawn, wanted = length(bar.get(side)), max(value * scale, LEAST[side])
            if side == "width":
                wanted = min(wanted, 100 - length(bar.get("x")))
            assert abs(drawn - wanted) <= 0.011, f"{pointer}: {drawn} of {wanted}"
            assert bar.find("title").text, pointer
            count += 1
    return count


if __name__ == "__main__":
    with open(sys.argv[2], encoding="utf-8") as file:
        parsed = json.load(file)
    with open(sys.argv[1], encoding="utf-8") as file:
        print(*compare(parsed[0] if isinstance(parsed, list) else parsed, file.read()))
