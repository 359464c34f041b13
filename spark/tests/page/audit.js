// What is wrong with the page as it stands now, in words. Opens what is folded, or (paper) folds it, and
// changes nothing else.
function (colours, paper) {
  const found = [];
  const wide = document.documentElement.clientWidth;
  const say = (what, element, more) => {
    if (found.length < 40) {
      const near = element.closest("section, header, nav");
      const text = (element.textContent || "").trim().slice(0, 50);
      found.push(`${what}: ${near ? near.id : ""} <${element.tagName} ${element.getAttribute("class") || ""}> ${text} ${more || ""}`);
    }
  };
  for (const one of document.querySelectorAll("details")) one.open = !paper;
  const box = (element) => element.getBoundingClientRect();
  const seen = (r) => r.width > 0 && r.height > 0;
  const round = (r) => `[${Math.round(r.left)},${Math.round(r.top)} to ${Math.round(r.right)},${Math.round(r.bottom)}]`;

  if (document.documentElement.scrollWidth > wide) found.push(`the page is ${document.documentElement.scrollWidth} wide, not ${wide}`);

  // Plots: something is drawn, and it lies within; words lie within, and not upon one another.
  const slack = 7.5;
  for (const svg of document.querySelectorAll("svg.plot, svg.strip")) {
    const frame = box(svg);
    if (!seen(frame)) { if (svg.matches(".plot")) say("a plot without size", svg); continue; }
    const marks = [...svg.querySelectorAll(".mark, .curve")].filter((mark) => { const r = box(mark); return r.width + r.height > 0.5; });
    if (!marks.length) say("an empty plot", svg, svg.parentElement.parentElement.textContent.slice(0, 60));
    for (const mark of [...svg.querySelectorAll(".mark, .curve, .span, .band, .grid")]) {
      if (!mark.getClientRects().length) continue;
      const r = box(mark);
      if (r.left < frame.left - slack || r.right > frame.right + slack || r.top < frame.top - 2 || r.bottom > frame.bottom + 2) {
        say("drawn outside of its plot", mark, `${round(r)} of ${round(frame)}`);
      }
    }
  }
  for (const svg of document.querySelectorAll("svg.plot, svg.axis")) {
    const frame = box(svg);
    const words = [...svg.querySelectorAll("text")].map((text) => [text, box(text)]).filter(([, r]) => seen(r));
    for (const [text, r] of words) {
      if (r.left < frame.left - 1 || r.right > frame.right + 1 || r.top < frame.top - 4 || r.bottom > frame.bottom + 4) say("words outside of the plot", text, `${round(r)} of ${round(frame)}`);
    }
    for (let i = 0; i < words.length; i++) for (let j = i + 1; j < words.length; j++) {
      const a = words[i][1], b = words[j][1];
      if (Math.min(a.right, b.right) - Math.max(a.left, b.left) > 0.5 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 3) say("words upon one another", words[i][0], words[j][0].textContent);
    }
  }

  // Words: within what holds them, within the page, and legible.
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const range = document.createRange();
  const memory = new Map();
  const parse = (text) => (text.match(/[\d.]+/g) || []).map(Number);
  const back = (element) => {
    if (!element) return [255, 255, 255];
    if (memory.has(element)) return memory.get(element);
    const [r, g, b, a] = parse(getComputedStyle(element).backgroundColor);
    const made = a === 0 ? back(element.parentElement) : [r, g, b];
    memory.set(element, made);
    return made;
  };
  const light = (rgb) => {
    const [r, g, b] = rgb.map((v) => v / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (a, b) => { const [x, y] = [light(a), light(b)].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };
  while (walk.nextNode()) {
    const node = walk.currentNode;
    const parent = node.parentElement;
    if (!node.data.trim() || parent.closest("title, style, .unseen, .skip")) continue;
    range.selectNodeContents(node);
    const rects = [...range.getClientRects()].filter(seen);
    if (!rects.length) continue;
    const style = getComputedStyle(parent);
    if (colours) {
      const ink = parse(parent.closest("svg") ? style.fill : style.color).slice(0, 3);
      const ratio = contrast(ink, back(parent));
      if (ratio < 4.5) say("hard to read", parent, `${ratio.toFixed(2)} ${style.color} on ${back(parent)}`);
    }
    if (parent.closest("svg")) continue;
    const holder = parent.closest("td, th, .tile, .legend, figcaption, p, li, dd, summary, h1, h2") || parent;
    const frame = box(holder);
    const scrolls = parent.closest(".scroll");
    for (const r of rects) {
      if (r.left < frame.left - 1.5 || r.right > frame.right + 1.5) { say("words wider than their place", parent, `${round(r)} of ${round(frame)}`); break; }
      if (r.top < frame.top - 6 || r.bottom > frame.bottom + 6) { say("words higher than their place", parent, `${round(r)} of ${round(frame)}`); break; }
      if (!scrolls && (r.left < 0 || r.right > wide)) { say("words beside the page", parent, round(r)); break; }
    }
  }
  // Cells of one row stand beside one another.
  for (const row of document.querySelectorAll("tr")) {
    const cells = [...row.children].map((cell) => [cell, box(cell)]).filter(([, r]) => seen(r));
    for (let i = 1; i < cells.length; i++) {
      const a = cells[i - 1][1], b = cells[i][1];
      if (Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 1) say("cells upon one another", cells[i][0]);
    }
  }
  if (colours) {
    for (const mark of document.querySelectorAll(".mark, .curve, .span, .key > *")) {
      const style = getComputedStyle(mark);
      const ink = parse(style.fill === "none" || mark.matches(".span, .line") ? style.stroke : style.fill).slice(0, 3);
      const ratio = contrast(ink, back(mark.closest("figure") ?? mark.parentElement));
      if (ratio < 3) say("hard to see", mark, ratio.toFixed(2));
    }
  }
  for (const section of document.querySelectorAll("main > section")) {
    if (!section.querySelector(".nothing, figure, table, dl, .tiles, .verdict")) say("an empty section", section);
  }
  for (const figure of document.querySelectorAll("figure")) {
    if (!figure.querySelector(".nothing, svg.plot, table tbody tr")) say("an empty figure", figure);
  }
  return found;
}
