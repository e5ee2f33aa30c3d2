/** The results as a picture that stands alone: an SVG that can be saved and sent. */

import type { Row } from './results';

const WIDTH = 760;
const LEFT = 250;
const RIGHT = 90;
const ROW = 34;
const TOP = 64;
const BAR = 18;

const COLOURS = {
  ground: '#ffffff',
  ink: '#1d1e22',
  soft: '#5a5d66',
  faster: '#4453d6',
  slower: '#b4530b',
  line: '#c9c6bd',
};

function escaped(text: string): string {
  return text.replace(/[&<>"]/g, (each) => `&#${each.charCodeAt(0)};`);
}

function text(
  x: number,
  y: number,
  content: string,
  options: { anchor?: string; size?: number; fill?: string; weight?: number } = {},
): string {
  const { anchor = 'start', size = 13, fill = COLOURS.ink, weight = 400 } = options;
  return (
    `<text x="${x}" y="${y}" text-anchor="${anchor}" font-size="${size}" ` +
    `font-weight="${weight}" fill="${fill}" stroke="none">${escaped(content)}</text>`
  );
}

/** A number with as many digits as one wants to read. */
export function short(value: number): string {
  if (value >= 100) return value.toFixed(0);
  return value >= 10 ? value.toFixed(1) : value.toFixed(2);
}

export interface ChartWords {
  title: string;
  /** Below the title: where it was measured. */
  where: string;
}

/**
 * A bar for each model that both engines ran: the peer's time divided by ours, with a
 * line at 1.
 */
export function chartSvg(rows: readonly Row[], words: ChartWords): string {
  const shown = rows.filter(({ ratio }) => ratio !== undefined);
  const height = TOP + Math.max(1, shown.length) * ROW + 20;
  const most = Math.max(2, ...shown.map(({ ratio }) => ratio as number));
  const scale = (WIDTH - LEFT - RIGHT) / most;
  const one = LEFT + scale;
  const parts = [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${height}" ` +
      `width="${WIDTH}" height="${height}" role="img" font-family="system-ui, sans-serif" ` +
      // A page's sheet may have a size for pictures of its own.
      `style="width: 100%; max-width: ${WIDTH}px; height: auto">`,
    `<title>${escaped(words.title)}</title>`,
    `<rect width="${WIDTH}" height="${height}" fill="${COLOURS.ground}" stroke="none"/>`,
    text(16, 26, words.title, { size: 16, weight: 650 }),
    text(16, 46, words.where, { fill: COLOURS.soft }),
  ];
  for (const [index, { title, ratio }] of shown.entries()) {
    const value = ratio as number;
    const top = TOP + index * ROW;
    const middle = top + BAR / 2 + 5;
    const colour = value >= 1 ? COLOURS.faster : COLOURS.slower;
    parts.push(
      text(LEFT - 12, middle, title, { anchor: 'end' }),
      `<rect class="bar" x="${LEFT}" y="${top}" width="${(value * scale).toFixed(1)}" ` +
        `height="${BAR}" rx="3" fill="${colour}" stroke="none"/>`,
      text(LEFT + value * scale + 8, middle, `${short(value)}x`, { weight: 600 }),
    );
  }
  if (shown.length === 0) {
    parts.push(text(16, TOP + 14, 'No model was run by both.', { fill: COLOURS.soft }));
  } else {
    const bottom = height - 22;
    parts.push(
      `<path d="M${one.toFixed(1)} ${TOP - 6}V${bottom}" stroke="${COLOURS.line}" ` +
        'stroke-width="1.5" stroke-dasharray="4 3" fill="none"/>',
      text(one, bottom + 14, 'equal', {
        anchor: 'middle',
        size: 11,
        fill: COLOURS.soft,
      }),
    );
  }
  return `${parts.join('\n')}\n</svg>\n`;
}
