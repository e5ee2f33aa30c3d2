/** Of repeated measurements: the middle, how far they spread, and means of ratios. */

/** The value below which a part of the sorted samples lies, between two if need be. */
export function quantile(samples: readonly number[], part: number): number {
  if (samples.length === 0) {
    throw new Error('quantile: there must be samples, got none');
  }
  const sorted = [...samples].sort((a, b) => a - b);
  const place = (sorted.length - 1) * part;
  const low = sorted[Math.floor(place)] as number;
  const high = sorted[Math.ceil(place)] as number;
  return low + (high - low) * (place - Math.floor(place));
}

export function median(samples: readonly number[]): number {
  return quantile(samples, 0.5);
}

/** Half the distance between the quartiles, as a part of the median. */
export function spread(samples: readonly number[]): number {
  const middle = median(samples);
  return middle === 0
    ? 0
    : (quantile(samples, 0.75) - quantile(samples, 0.25)) / 2 / middle;
}

/** The mean of ratios, in which 2 and 1/2 make 1. */
export function geometricMean(ratios: readonly number[]): number {
  if (ratios.length === 0) {
    throw new Error('geometricMean: there must be ratios, got none');
  }
  const sum = ratios.reduce((total, ratio) => total + Math.log(ratio), 0);
  return Math.exp(sum / ratios.length);
}

/**
 * The largest difference of two lists of results, as a part of the largest value; not a
 * number if shapes differ or a value is none.
 */
export function difference(
  got: readonly ArrayLike<number | bigint>[],
  wanted: readonly ArrayLike<number | bigint>[],
): number {
  if (got.length !== wanted.length) return Number.NaN;
  let worst = 0;
  for (const [index, mine] of got.entries()) {
    const other = wanted[index] as ArrayLike<number | bigint>;
    if (mine.length !== other.length) return Number.NaN;
    let far = 0;
    let largest = 0;
    for (let i = 0; i < mine.length; i++) {
      const value = Number(other[i]);
      const apart = Math.abs(Number(mine[i]) - value);
      if (Number.isNaN(apart)) return Number.NaN;
      far = Math.max(far, apart);
      largest = Math.max(largest, Math.abs(value));
    }
    worst = Math.max(worst, far === 0 ? 0 : far / largest);
  }
  return worst;
}
