/** Programs that were tampered with are read, or refused with an error of this package. */

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { WebGPUError } from '../../src/errors';
import { readCases } from '../../src/file/bundle';
import { openProgram } from '../../src/open';
import { BytesSource } from '../../src/source/held';
import { BUILD } from './browser';

const MUTANTS = 1500;

function program(name: string): Uint8Array<ArrayBuffer> {
  return new Uint8Array(readFileSync(join(BUILD, 'programs', name)));
}

/** Numbers that are the same every time. */
function* numbers(seed: number): Generator<number, never> {
  let state = seed;
  for (;;) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    yield state >>> 8;
  }
}

/** Reads all that is read before plans and weights. */
async function read(bytes: Uint8Array<ArrayBuffer>): Promise<'read' | 'refused'> {
  const source = new BytesSource(bytes, {});
  try {
    const { span, isBundle } = await openProgram(source);
    if (isBundle) {
      await readCases(source, span);
    }
    return 'read';
  } catch (error) {
    if (error instanceof WebGPUError) {
      return 'refused';
    }
    throw error;
  }
}

test.each(['mlp.pte', 'two_methods.pte', 'branches.pte', 'on_cpu.pte', 'bundle.bpte'])(
  '%s',
  async (name) => {
    const good = program(name);
    expect(await read(good)).toBe('read');
    const draw = numbers(name.length);
    const next = (below: number): number => draw.next().value % below;
    // The flatbuffer is at the start; what is behind it has hashes.
    const end = Math.min(good.length, 8192);
    const found = { read: 0, refused: 0 };
    for (let i = 0; i < MUTANTS; i++) {
      const bytes = good.slice();
      for (let left = 1 + next(3); left > 0; left--) {
        bytes[next(end)] = [0, 1, 0x7f, 0x80, 0xff, next(256)][next(6)] ?? 0;
      }
      found[await read(bytes)]++;
    }
    for (let i = 0; i < 200; i++) {
      found[await read(good.slice(0, next(good.length)))]++;
    }
    expect(found.read).toBeGreaterThan(0);
    expect(found.refused).toBeGreaterThan(100);
  },
);
