/** The kernels of a delegate: which are needed when, and their pipelines. */

import { type PlanProfile, type Plans, type PlanVariant, textOf } from '../file/plans';
import type { Gpu } from '../gpu/device';
import { type Pipeline, pipeline } from '../gpu/pipelines';
import { at, placeOf } from './live_plan';

/**
 * When kernels are compiled that not all sizes need: with the first call that needs them,
 * or when the program is loaded.
 */
export type CompileWhen = 'call' | 'load';

export class Kernels {
  readonly pipelines = new Map<number, Pipeline>();
  readonly #gpu: Gpu;
  readonly #plans: Plans;
  readonly #profile: PlanProfile;
  readonly #count: number;

  constructor(gpu: Gpu, plans: Plans, profile: PlanProfile) {
    this.#gpu = gpu;
    this.#plans = plans;
    this.#profile = profile;
    this.#count = this.#all().size;
  }

  /** Those to compile at load, with the op that needs each first. */
  atLoad(when: CompileWhen): Map<number, string> {
    const all = this.#all();
    if (when === 'load') return all;
    const { variants } = this.#profile;
    const needed = variants.map((variant) => this.#of(variant));
    return new Map(
      [...all].filter(([index]) => needed.every((each) => each.has(index))),
    );
  }

  /** Has all that a variant needs compiled. */
  async prepare(variant: PlanVariant): Promise<void> {
    await this.compile(this.#of(variant), () => undefined);
  }

  /** Compiles those that are not; `onDone` is told of each. */
  async compile(
    wanted: ReadonlyMap<number, string>,
    onDone: () => void,
  ): Promise<void> {
    const missing = [...wanted].filter(([index]) => !this.pipelines.has(index));
    await Promise.all(
      missing.map(async ([index, where]) => {
        const kernel = at(this.#plans.kernels, index);
        const { label, access } = kernel;
        const text = textOf(this.#plans, kernel);
        const made = await pipeline(this.#gpu, { label, access, text, where });
        this.pipelines.set(index, made);
        onDone();
      }),
    );
    if (this.pipelines.size === this.#count) {
      // No text is needed any more.
      this.#plans.lines = [];
    }
  }

  #all(): Map<number, string> {
    const found = this.#profile.variants.map((variant) => this.#of(variant));
    // The first op that needs a kernel names it.
    return new Map(found.reverse().flatMap((each) => [...each]));
  }

  #of(variant: PlanVariant): Map<number, string> {
    const found = new Map<number, string>();
    for (const index of variant.dispatches) {
      const dispatch = at(this.#plans.dispatches, index);
      if (!found.has(dispatch.kernel)) {
        found.set(dispatch.kernel, placeOf(this.#plans, dispatch));
      }
    }
    return found;
  }
}
