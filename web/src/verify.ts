/** Results beside what a bundled program says that they should be. */

import type { BundledValue } from './file/bundle';
import type { Output } from './method';
import { numbersOf } from './numbers';
import { Tensor, type TensorData, type TensorType } from './tensor';

export interface VerifyOptions {
  /** A result may differ by `atol` and by `rtol` of what is expected. */
  rtol?: number | undefined;
  atol?: number | undefined;
  signal?: AbortSignal | undefined;
}

/** How one call of a bundle went. */
export interface Verified {
  index: number;
  method: string;
  isRight: boolean;
  /** The largest difference of two numbers. */
  largestError: number;
  /** What is wrong; '' if nothing is. */
  problem: string;
}

// Of types with fewer digits, results have fewer in common.
const LIMITS: Partial<Record<TensorType, { rtol: number; atol: number }>> = {
  float32: { rtol: 1e-3, atol: 1e-4 },
  float16: { rtol: 1e-2, atol: 1e-2 },
  bfloat16: { rtol: 5e-2, atol: 5e-2 },
};

export async function compareCase(
  place: { index: number; method: string },
  outputs: readonly Output[],
  expected: readonly BundledValue[],
  options: VerifyOptions,
): Promise<Verified> {
  const verified: Verified = { ...place, isRight: true, largestError: 0, problem: '' };
  const fail = (problem: string): void => {
    verified.isRight = false;
    verified.problem ||= problem;
  };
  if (outputs.length !== expected.length) {
    fail(`results must be ${expected.length}, got ${outputs.length}`);
  }
  for (const [i, wanted] of expected.entries()) {
    const got = outputs[i];
    if (wanted instanceof Tensor && got instanceof Tensor) {
      const what = `result ${i}`;
      if (got.type !== wanted.type || got.dims.join() !== wanted.dims.join()) {
        fail(`${what} must be ${shown(wanted)}, got ${shown(got)}`);
        continue;
      }
      const data = [await got.data(), await wanted.data()] as const;
      const { worst, at } = compare(wanted.type, ...data, options);
      verified.largestError = Math.max(verified.largestError, worst);
      if (at >= 0) {
        fail(`${what} must be ${data[1][at]} at ${at}, got ${data[0][at]}`);
      }
    } else if (got !== wanted) {
      fail(`result ${i} must be ${String(wanted)}, got ${String(got)}`);
    }
  }
  return verified;
}

function shown(tensor: Tensor): string {
  return `${tensor.type} [${tensor.dims.join(', ')}]`;
}

/** The largest difference, and where the first is that is too large; -1 if none is. */
function compare(
  type: TensorType,
  got: TensorData,
  wanted: TensorData,
  options: VerifyOptions,
): { worst: number; at: number } {
  const rtol = options.rtol ?? LIMITS[type]?.rtol ?? 0;
  const atol = options.atol ?? LIMITS[type]?.atol ?? 0;
  const [a, b] = [numbersOf(type, got), numbersOf(type, wanted)];
  let worst = 0;
  let at = -1;
  for (let i = 0; i < b.length; i++) {
    const x = a[i] ?? Number.NaN;
    const y = b[i] ?? Number.NaN;
    const isSame = x === y || (Number.isNaN(x) && Number.isNaN(y));
    const error = isSame ? 0 : Math.abs(x - y);
    if (!(error <= atol + rtol * Math.abs(y)) && at < 0 && !isSame) {
      at = i;
    }
    worst = Math.max(worst, error);
  }
  return { worst, at };
}
