/** How large the page's JavaScript heap becomes while something is done. */

interface Heap {
  usedJSHeapSize: number;
}

/** Bytes in use now; undefined where the browser does not say. */
export function heapBytes(): number | undefined {
  const { memory } = performance as Performance & { memory?: Heap };
  return memory?.usedJSHeapSize;
}

const EVERY_MS = 10;

export interface HeapUse {
  heapBefore?: number;
  heapPeak?: number;
}

/** What `work` gives, and the most bytes that were seen in use meanwhile. */
export async function watchHeap<T>(
  work: () => Promise<T>,
  read: () => number | undefined = heapBytes,
): Promise<{ made: T; heap: HeapUse }> {
  const before = read();
  if (before === undefined) return { made: await work(), heap: {} };
  let peak = before;
  const look = (): void => {
    peak = Math.max(peak, read() ?? 0);
  };
  const timer = setInterval(look, EVERY_MS);
  try {
    const made = await work();
    look();
    return { made, heap: { heapBefore: before, heapPeak: peak } };
  } finally {
    clearInterval(timer);
  }
}
