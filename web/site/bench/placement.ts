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

/** Runs `work` and gives what it wrote to the console, which shows none of it. */
export async function listening(work: () => Promise<void>): Promise<string[]> {
  const lines: string[] = [];
  const kept = LEVELS.map((level) => [level, console[level]] as const);
  for (const level of LEVELS) {
    console[level] = (...parts: unknown[]): void => {
      lines.push(parts.map(String).join(' '));
    };
  }
  try {
    await work();
  } finally {
    for (const [level, write] of kept) {
      console[level] = write;
    }
  }
  return lines;
}
