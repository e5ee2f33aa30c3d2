/**
 * Where onnxruntime-web put the nodes of a model: its session does not say, its log at
 * the lowest level does.
 */

export const WEBGPU = 'WebGpuExecutionProvider';

const SOME = /Node\(s\) placed on \[(\w+)\]\. Number of nodes: (\d+)/;
const ALL = /All nodes placed on \[(\w+)\]\. Number of nodes: (\d+)/;

/** Nodes by provider, from lines of the log; undefined if it says nothing of them. */
export function readPlacement(
  lines: readonly string[],
): Record<string, number> | undefined {
  const found: Record<string, number> = {};
  for (const line of lines) {
    const match = SOME.exec(line) ?? ALL.exec(line);
    // A session that is made again logs again: the last word counts.
    if (match) found[match[1] as string] = Number(match[2]);
  }
  return Object.keys(found).length === 0 ? undefined : found;
}

/** Why a placement is none that may be timed as WebGPU; undefined if it may. */
export function misplaced(
  nodes: Record<string, number> | undefined,
): string | undefined {
  if (nodes === undefined) {
    return 'its log must say where nodes run, got nothing';
  }
  if (!nodes[WEBGPU]) {
    return `nodes must run on ${WEBGPU}, got ${Object.keys(nodes).join(', ')}`;
  }
  return undefined;
}

const LEVELS = ['debug', 'log', 'info', 'warn', 'error'] as const;

/**
 * Hears what is written to a console. It must be made before the runtime is imported,
 * which keeps the functions that it finds then.
 */
export class ConsoleTap {
  #lines: string[] | undefined;

  constructor(target: Pick<Console, (typeof LEVELS)[number]> = console) {
    for (const level of LEVELS) {
      const write = target[level].bind(target);
      target[level] = (...parts: unknown[]): void => {
        if (this.#lines) this.#lines.push(parts.map(String).join(' '));
        else write(...parts);
      };
    }
  }

  /** Runs `work` and gives what it wrote, of which the console shows nothing. */
  async listen(work: () => Promise<void>): Promise<string[]> {
    const lines: string[] = [];
    this.#lines = lines;
    try {
      await work();
    } finally {
      this.#lines = undefined;
    }
    return lines;
  }
}
