// Texts that are too faint for what is behind them, by the rule of WCAG AA: 4.5 to 1, and 3 to 1 where they are large.

// Runs in the page.
export function faintTexts() {
  const parts = (text) => { const all = text.match(/[\d.]+/g).map(Number); return all.length < 4 ? [...all, 1] : all; };
  const over = ([r, g, b, share], below) => [r, g, b].map((value, index) => value * share + below[index] * (1 - share));
  const light = (value) => (value / 255 <= 0.03928 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4);
  const brightness = ([r, g, b]) => 0.2126 * light(r) + 0.7152 * light(g) + 0.0722 * light(b);
  const behind = (node) => {
    const layers = [];
    for (let at = node; at; at = at.parentElement) layers.push(parts(getComputedStyle(at).backgroundColor));
    return layers.reverse().reduce((below, layer) => over(layer, below), [255, 255, 255]);
  };
  const found = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const node = walk.currentNode.parentElement;
    if (walk.currentNode.textContent.trim() === "" || node.closest("[hidden], .skip, .hidden, :disabled, noscript") || !node.checkVisibility()) continue;
    const { color, fontSize, fontWeight } = getComputedStyle(node);
    const ground = behind(node);
    const [one, other] = [brightness(over(parts(color), ground)), brightness(ground)];
    const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    const isLarge = parseFloat(fontSize) >= 24 || (parseFloat(fontSize) >= 18.66 && Number(fontWeight) >= 700);
    if (ratio < (isLarge ? 3 : 4.5)) found.push(`${node.className}: ${walk.currentNode.textContent.trim()} (${ratio.toFixed(2)})`);
  }
  return found;
}
