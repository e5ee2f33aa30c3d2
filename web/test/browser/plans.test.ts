/** Plans that are wrong are refused here with the code and the words of C++. */

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { WebGPUError } from '../../src/errors';
import { readPlans } from '../../src/file/plan_file';
import { BUILD } from './browser';

interface Told {
  blob: string;
  answer: string;
}

const all: Record<string, Told> = JSON.parse(
  readFileSync(join(BUILD, 'plans.json'), 'utf8'),
);

/** What reading comes to, as C++ writes it. */
function read({ blob }: Told): string {
  try {
    readPlans(Uint8Array.from(atob(blob), (char) => char.charCodeAt(0)));
    return 'ok';
  } catch (error) {
    if (error instanceof WebGPUError) {
      return `error ${error.number} ${error.message}`;
    }
    throw error;
  }
}

/** Whether C++ refuses what it reads, and not what it then does with a GPU. */
function isRefused(answer: string): boolean {
  return /^error 48 (plans: |delegate|the delegate's plans must follow)/.test(answer);
}

test('there are some of each kind', () => {
  const answers = Object.values(all).map(({ answer }) => answer);
  expect(answers.filter((answer) => answer.startsWith('ok')).length).toBeGreaterThan(
    50,
  );
  expect(answers.filter(isRefused).length).toBeGreaterThan(200);
});

test('each is read, or refused with the same words', () => {
  const wanted: Record<string, string> = {};
  const found: Record<string, string> = {};
  for (const [name, told] of Object.entries(all)) {
    wanted[name] = isRefused(told.answer) ? told.answer : 'ok';
    found[name] = read(told);
  }
  expect(found).toEqual(wanted);
});
