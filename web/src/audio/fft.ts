/** The discrete Fourier transform of any length, by its prime factors. */

/** Transforms rows of one length; tables are made once. */
export class Fft {
  private readonly cos: Float64Array;
  private readonly sin: Float64Array;

  constructor(readonly size: number) {
    this.cos = new Float64Array(size);
    this.sin = new Float64Array(size);
    for (let index = 0; index < size; index++) {
      const angle = (-2 * Math.PI * index) / size;
      this.cos[index] = Math.cos(angle);
      this.sin[index] = Math.sin(angle);
    }
  }

  /** Squared magnitudes of the frequencies 0 to size / 2 of real numbers. */
  power(input: Float64Array, output: Float64Array): void {
    const [real, imaginary] = this.transform(input, 0, 1, this.size);
    for (let k = 0; k <= this.size >> 1; k++) {
      const [re, im] = [real[k] as number, imaginary[k] as number];
      output[k] = re * re + im * im;
    }
  }

  private transform(
    input: Float64Array,
    start: number,
    stride: number,
    size: number,
  ): [Float64Array, Float64Array] {
    const real = new Float64Array(size);
    const imaginary = new Float64Array(size);
    if (size === 1) {
      real[0] = input[start] as number;
      return [real, imaginary];
    }
    const factor = smallestFactor(size);
    const inner = size / factor;
    const parts = Array.from({ length: factor }, (_, part) =>
      this.transform(input, start + part * stride, stride * factor, inner),
    );
    for (let k = 0; k < size; k++) {
      let re = 0;
      let im = 0;
      for (let part = 0; part < factor; part++) {
        const [a, b] = parts[part] as [Float64Array, Float64Array];
        const turn = (part * k * stride) % this.size;
        const [c, s] = [this.cos[turn] as number, this.sin[turn] as number];
        const [x, y] = [a[k % inner] as number, b[k % inner] as number];
        re += x * c - y * s;
        im += x * s + y * c;
      }
      real[k] = re;
      imaginary[k] = im;
    }
    return [real, imaginary];
  }
}

function smallestFactor(size: number): number {
  for (let factor = 2; factor * factor <= size; factor++) {
    if (size % factor === 0) return factor;
  }
  return size;
}
