/** Plays programs that Python wrote, with what it came to, and says what differs. */

import { CODES, Module, numbersOf, Tensor } from '/dist/executorch-webgpu.js';
import { arrayOf, bytesOf, tensor } from '/test/given.js';

/** A value of a description: an int or a tensor. */
function given(shown) {
  return 'int' in shown ? shown.int : tensor(shown);
}

async function describe(name) {
  return (await fetch(`/programs/${name}.json`)).json();
}

/** The bits of a result, and those that are wanted: what differs, as a text. */
async function difference(result, shown) {
  if ('int' in shown) {
    return result === shown.int ? '' : `${shown.int} wanted, got ${result}`;
  }
  if (!(result instanceof Tensor)) {
    return `a tensor wanted, got ${result}`;
  }
  const { type, dims } = result;
  if (type !== shown.type || dims.join() !== shown.dims.join()) {
    return `${shown.type} [${shown.dims}] wanted, got ${type} [${dims}]`;
  }
  const data = await result.data();
  const got = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  const wanted = bytesOf(shown.data);
  if (got.length === wanted.length && got.every((byte, i) => byte === wanted[i])) {
    return '';
  }
  const a = numbersOf(type, data);
  const b = numbersOf(type, arrayOf(type, wanted));
  let worst = 0;
  let where = -1;
  for (let i = 0; i < a.length; i++) {
    const isSame = Object.is(a[i], b[i]) || (Number.isNaN(a[i]) && Number.isNaN(b[i]));
    const error = isSame ? 0 : Math.abs(a[i] - b[i]) / Math.max(1, Math.abs(b[i]));
    if (!(error <= worst)) {
      [worst, where] = [error, i];
    }
  }
  return where < 0 ? '' : `${b[where]} wanted at ${where}, got ${a[where]} (${worst})`;
}

/** What a call that must fail came to. */
function errorDifference(error, { code, text }) {
  // Without a text it is ExecuTorch that refuses, by codes of its own.
  const isSame =
    text === ''
      ? error.code === 'InvalidArgument'
      : error.number === code && error.message === text;
  return isSame ? '' : `error ${code} ${text} wanted, got ${error.number} ${error}`;
}

async function playStep(module, step) {
  if (step.reset) {
    await module.resetState();
    return [];
  }
  const { wanted } = step;
  let results;
  try {
    results = await module.forward(step.inputs.map(given));
  } catch (error) {
    return [
      wanted.code
        ? errorDifference(error, wanted)
        : `results wanted, got ${error.stack ?? error}`,
    ];
  }
  if (wanted.code) {
    return [`error ${wanted.code} ${wanted.text} wanted, got results`];
  }
  if (results.length !== wanted.results.length) {
    return [`${wanted.results.length} results wanted, got ${results.length}`];
  }
  const found = [];
  for (const [i, shown] of wanted.results.entries()) {
    found.push(await difference(results[i], shown));
    results[i].dispose?.();
  }
  return found.map((each, i) => each && `result ${i}: ${each}`);
}

/** All that differs from what Python came to; nothing if all is the same. */
export async function play(name) {
  const { file, plays, cpu } = await describe(name);
  const url = `/programs/${file}`;
  if (cpu) {
    const error = await Module.load(url).then(
      (module) => module.dispose(),
      (reason) => reason,
    );
    const isTold = cpu.some((op) => error?.message.includes(`got ${op};`));
    return error?.number === CODES.NotSupported && isTold ? [] : [`got ${error}`];
  }
  const found = [];
  for (const { flags, profiles, steps } of plays) {
    const { f16, subgroups, cpu_kernels: cpuKernels } = flags;
    const module = await Module.load(url, {
      f16,
      subgroups,
      cpuKernels,
      cache: 'none',
    });
    const label = `${profiles}`;
    if (module.stats().profiles.sort().join() !== profiles.join()) {
      found.push(`profiles ${profiles} wanted, got ${module.stats().profiles}`);
    }
    for (const [i, step] of steps.entries()) {
      for (const each of await playStep(module, step)) {
        if (each) {
          found.push(`${label}, step ${i}, ${each}`);
        }
      }
    }
    module.dispose();
  }
  return found;
}
