/** Short names for what every page does with its elements. */

type Kind<T extends Element> = new () => T;

/** The element with an id, which the page's HTML must have. */
export function byId<T extends Element = HTMLElement>(
  id: string,
  kind: Kind<T> = HTMLElement as unknown as Kind<T>,
): T {
  const found = document.getElementById(id);
  if (!(found instanceof kind)) {
    throw new Error(`the page must have a ${kind.name} #${id}, got ${found?.nodeName}`);
  }
  return found;
}

/** A new element with attributes and what stands in it. */
export function make<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Record<string, string> = {},
  ...content: (Node | string)[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    element.setAttribute(name, value);
  }
  element.append(...content);
  return element;
}

/** A size that people can read. */
export function bytes(count: number): string {
  if (count < 1e6) return `${(count / 1e3).toFixed(count < 1e4 ? 1 : 0)} KB`;
  return `${(count / 1e6).toFixed(count < 1e7 ? 1 : 0)} MB`;
}

/** A time that people can read. */
export function duration(ms: number): string {
  if (ms < 10) return `${ms.toFixed(1)} ms`;
  if (ms < 1000) return `${ms.toFixed(0)} ms`;
  return `${(ms / 1000).toFixed(ms < 10000 ? 2 : 1)} s`;
}

/** The list of what was found, with bars as long as their numbers. */
export function bars(
  list: HTMLElement,
  rows: readonly { text: string; part: number; shown: string; value: number }[],
): void {
  list.replaceChildren(
    ...rows.map(({ text, part, shown, value }) => {
      const number = make('span', { class: 'number' }, shown);
      const row = make(
        'li',
        { 'data-value': String(value) },
        make('span', {}, text),
        number,
      );
      row.style.setProperty('--part', String(Math.min(1, Math.max(0, part))));
      return row;
    }),
  );
}
