/** The words for what a kernel reports, as in csrc/player/report.cpp. */

// The kinds in wgsl/prelude/status.wgsl: BAD_INDEX is Index.
enum Kind {
  None = 0,
  Index = 1,
  Sum = 3,
  Difference = 5,
  Product = 7,
  Shift = 9,
  Number = 11,
  Total = 13,
  Whole = 15,
  Divisor = 17,
}

function beyond(value: string): string {
  return `an int64 must fit int32 on the GPU, got ${value}`;
}

/** As C prints a number by `%.9g`. */
function shortest(value: number, isNegative: boolean): string {
  const sign = isNegative ? '-' : '';
  if (Number.isNaN(value)) {
    return `${sign}nan`;
  }
  if (!Number.isFinite(value)) {
    return `${sign}inf`;
  }
  const [digits = '', exponent = ''] = Math.abs(value).toExponential(8).split('e');
  const power = Number(exponent);
  if (power >= -4 && power < 9) {
    return sign + String(Number(Math.abs(value).toFixed(8 - power)));
  }
  const shown = String(Number(digits));
  const size = String(Math.abs(power)).padStart(2, '0');
  return `${sign}${shown}e${power < 0 ? '-' : '+'}${size}`;
}

function number(bits: number): string {
  const view = new DataView(new ArrayBuffer(4));
  view.setInt32(0, bits);
  return shortest(view.getFloat32(0), bits < 0);
}

/**
 * The status buffer, [kind, call, a, b], as the requirement that was not met and the
 * value; '' if no kernel has reported anything.
 */
export function describeReport(status: ArrayLike<number>): string {
  const [kind = 0, , a = 0, b = 0] = Array.from(status);
  switch (kind) {
    case Kind.None:
      return '';
    case Kind.Index:
      return `index must be in [0, ${b}), got ${a}`;
    case Kind.Sum:
      return beyond(`${a} + ${b}`);
    case Kind.Difference:
      return beyond(`${a} - ${b}`);
    case Kind.Product:
      return beyond(`${a} * ${b}`);
    case Kind.Shift:
      return beyond(`${a} << ${b}`);
    case Kind.Number:
      return beyond(number(a));
    case Kind.Total:
      return beyond(String((BigInt(b) << 32n) | BigInt.asUintN(32, BigInt(a))));
    case Kind.Whole:
      return beyond('a larger product');
    case Kind.Divisor:
      return 'an integer must not be divided by 0, got 0';
    default:
      return `a report must be known, got ${kind}`;
  }
}
