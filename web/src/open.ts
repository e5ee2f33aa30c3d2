/** From a file to its program and plans: all that is read before a GPU is asked for. */

import { WebGPUError } from './errors';
import { BUNDLE_IDENTIFIER, programSpan } from './file/bundle';
import type { PlanProfile, Plans } from './file/plans';
import type { Program, Span } from './file/program';
import {
  HEADER_BYTES,
  identifierOf,
  readHeader,
  readProgram,
} from './file/program_file';
import { neededLimits } from './gpu/device';
import { checkMethod } from './method';
import { type PlannedMethod, type ProgramSource, readMethod } from './session';

export const BACKEND = 'WebGPUBackend';

/** A program, and where in its file it is. */
export interface OpenProgram {
  program: Program;
  span: Span;
  isBundle: boolean;
}

/** Reads the program, without its delegates and weights. */
export async function openProgram(source: ProgramSource): Promise<OpenProgram> {
  const whole = source.size ?? Number.POSITIVE_INFINITY;
  if (whole < HEADER_BYTES) {
    throw new WebGPUError(
      'InvalidProgram',
      `the file must be a program of ExecuTorch, got ${whole} bytes`,
    );
  }
  let head = await source.read(0, HEADER_BYTES);
  const isBundle = identifierOf(head) === BUNDLE_IDENTIFIER;
  let span: Span = { start: 0, size: whole };
  if (isBundle) {
    // The root of a bundle is at its start.
    span = await programSpan(source, await source.read(0, Math.min(whole, 4096)));
    head = await source.read(span.start, span.start + HEADER_BYTES);
  }
  const header = readHeader(head, span.size);
  if (!Number.isFinite(header.size)) {
    throw new WebGPUError(
      'InvalidProgram',
      'a stream must have a program with a header, got one without; load it as bytes',
    );
  }
  const bytes = await source.read(span.start, span.start + header.size);
  const program = readProgram(bytes, header, span.start, span.size);
  return { program, span, isBundle };
}

/** Reads the plans of some methods; throws if a browser cannot run one of them. */
export async function readMethods(
  source: ProgramSource,
  program: Program,
  names: readonly string[] | undefined,
): Promise<PlannedMethod[]> {
  const wanted = names ?? program.methods.map((method) => method.name);
  const found: PlannedMethod[] = [];
  for (const name of wanted) {
    const method = program.methods.find((each) => each.name === name);
    if (method === undefined) {
      const all = program.methods.map((each) => each.name).join(', ');
      throw new WebGPUError(
        'InvalidArgument',
        `Module: a method must be one of ${all}, got ${name}`,
      );
    }
    checkMethod(method, BACKEND);
    found.push(await readMethod(source, method));
  }
  return found;
}

/** What a program needs, before its weights are fetched. */
export interface Requirements {
  /** Of the program's file; undefined if nobody knows yet. */
  fileBytes: number | undefined;
  /** Bytes of the file that are weights. */
  weightBytes: number;
  /** Bytes of the buffers on the GPU, weights included. */
  gpuBytes: number;
  /** Features of a GPU without which the program does not run. */
  features: string[];
  /** Features that it uses where they are. */
  optionalFeatures: string[];
  /** The least of each of WebGPU's limits. */
  limits: Record<string, number>;
}

/** What all delegates need at least: each comes with its least demanding profile. */
export function requirementsOf(
  source: ProgramSource,
  program: Program,
  methods: readonly PlannedMethod[],
): Requirements {
  const all = methods.flatMap(({ plans }) => plans);
  const least = all.map((plans) => plans.profiles.at(-1) as PlanProfile);
  const some = all.flatMap((plans) => plans.profiles);
  const features = (profiles: readonly PlanProfile[]): string[] => [
    ...(profiles.some((each) => each.f16) ? ['shader-f16'] : []),
    ...(profiles.some((each) => each.subgroups) ? ['subgroups'] : []),
  ];
  const needed = features(least);
  const keys = new Set(
    all.flatMap((plans) => plans.constants.map((each) => each.dataKey)),
  );
  const weights = [...keys].map((key) => program.namedData.get(key));
  return {
    fileBytes: source.size,
    weightBytes: weights.reduce((sum, span) => sum + (span?.size ?? 0), 0),
    gpuBytes: gpuBytes(all, least),
    features: needed,
    optionalFeatures: features(some).filter((each) => !needed.includes(each)),
    limits: neededLimits(least),
  };
}

// Constants of one content are one buffer.
function gpuBytes(all: readonly Plans[], profiles: readonly PlanProfile[]): number {
  const shared = new Map<string, number>();
  let own = 0;
  all.forEach((plans, i) => {
    const contents = new Map(plans.constants.map((each) => [each.buffer, each]));
    const used = new Set<number>();
    for (const variant of profiles[i]?.variants ?? []) {
      const dispatches = variant.dispatches.map((number) => plans.dispatches[number]!);
      const ports = [...variant.inputs, ...variant.outputs];
      for (const number of [
        ...dispatches.flatMap((each) => each.buffers),
        ...ports.map((port) => plans.ports[port]!.buffer),
        variant.status,
      ]) {
        used.add(number);
      }
    }
    for (const number of used) {
      const size = plans.buffers[number]?.size ?? 0;
      const content = contents.get(number);
      if (content === undefined) {
        own += size;
      } else {
        shared.set(`${content.dataKey} ${content.storage} ${size}`, size);
      }
    }
  });
  return own + [...shared.values()].reduce((sum, size) => sum + size, 0);
}
