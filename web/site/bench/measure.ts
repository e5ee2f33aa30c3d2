/** One model in both engines: first results, then rounds in which they take turns. */

import type { BenchCase, Sizes } from './cases';
import type { Engine, Results } from './engine';
import { watchHeap } from './heap';
import {
  type CaseResult,
  ENGINE_TITLES,
  type EngineName,
  type EngineResult,
  TOLERANCE,
} from './results';
import { difference } from './stats';

export interface MeasureOptions {
  rounds: number;
  sizes: Sizes;
  signal: AbortSignal;
  /** Told before every step. */
  onStep: (text: string) => void;
}

/** An engine that takes part, and what became of it. */
interface Player {
  name: EngineName;
  engine: Engine;
  result: EngineResult;
  results: Results;
}

function reason(error: unknown): string {
  // An error of a frame is none of the page's own classes.
  const { message } = error as { message?: unknown };
  return typeof message === 'string' ? message : String(error);
}

/** Engines by name, each loaded when its turn comes; all are disposed of at the end. */
export async function measureCase(
  bench: BenchCase,
  engines: Partial<Record<EngineName, Engine | { failed: string }>>,
  options: MeasureOptions,
): Promise<CaseResult> {
  const inputs = bench.inputs[options.sizes];
  const result: CaseResult = {
    name: bench.name,
    title: bench.title,
    inputs: inputs.map(({ type, dims }) => ({ type, dims })),
    difference: null,
    engines: {},
  };
  const players: Player[] = [];
  for (const [key, engine] of Object.entries(engines)) {
    const name = key as EngineName;
    const own: EngineResult = { samples: [] };
    result.engines[name] = own;
    if ('failed' in engine) own.failed = engine.failed;
    else players.push({ name, engine, result: own, results: [] });
  }
  try {
    for (const player of players) {
      await attempt(player, options, () => first(player, bench, options));
    }
    await takeTurns(players, bench, options);
    for (const player of players) {
      await attempt(player, options, () => ask(player));
    }
  } finally {
    await Promise.allSettled(players.map(({ engine }) => engine.dispose()));
  }
  result.difference = compare(players);
  return result;
}

/** What goes wrong is the engine's result; only the visitor's stop ends all. */
async function attempt(
  player: Player,
  { signal }: MeasureOptions,
  work: () => Promise<void>,
): Promise<void> {
  signal.throwIfAborted();
  if (player.result.failed !== undefined) return;
  try {
    await work();
  } catch (error) {
    player.result.failed = reason(error);
  }
}

async function first(
  player: Player,
  bench: BenchCase,
  { onStep }: MeasureOptions,
): Promise<void> {
  onStep(`${bench.title}: first result of ${ENGINE_TITLES[player.name]}`);
  const { made, heap } = await watchHeap(() => player.engine.first());
  player.results = made.results;
  player.result.firstMs = made.ms;
  Object.assign(player.result, heap);
}

async function takeTurns(
  players: Player[],
  bench: BenchCase,
  options: MeasureOptions,
): Promise<void> {
  const { rounds, onStep } = options;
  for (let round = 0; round < rounds; round++) {
    onStep(`${bench.title}: round ${round + 1} of ${rounds}`);
    // Who goes first changes, so that what one leaves behind meets both.
    const order = round % 2 === 0 ? players : [...players].reverse();
    for (const player of order) {
      await attempt(player, options, async () => {
        const { ms, results } = await player.engine.run();
        player.result.samples.push(ms);
        player.results = results;
      });
    }
  }
}

async function ask(player: Player): Promise<void> {
  const { failed, ...facts } = await player.engine.facts();
  Object.assign(player.result, facts);
  if (failed !== undefined) player.result.failed = failed;
}

/** Of the last results; a peer that disagrees is not timed. */
function compare(players: Player[]): number | null {
  const ours = players.find(({ name }) => name === 'ours');
  const peer = players.find(({ name }) => name === 'ort');
  if (!ours || !peer || ours.results.length === 0 || peer.results.length === 0) {
    return null;
  }
  const apart = difference(peer.results, ours.results);
  if (!(apart <= TOLERANCE)) {
    const text = Number.isFinite(apart) ? `${(apart * 100).toFixed(2)}%` : 'none';
    for (const player of [ours, peer]) {
      player.result.failed ??= `the two results must be within ${TOLERANCE * 100}% of the largest value, got ${text}`;
    }
  }
  return Number.isFinite(apart) ? apart : null;
}
