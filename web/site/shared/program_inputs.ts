/** Fields for the inputs of any program. */

import { DType, Storage } from '../../src/file/plans';
import { pictureTensor } from '../../src/image';
import type { PortMeta } from '../../src/meta';
import type { Input } from '../../src/method';
import { fromStorage } from '../../src/player/convert';
import { Tensor, type TensorType } from '../../src/tensor';
import { random } from '../../src/text/sampling';
import { make } from './dom';

type TensorPort = Extract<PortMeta, { kind: 'tensor' }>;

/** Reads what a visitor wants to give; throws what is wrong with it. */
export type InputReader = () => Promise<Input>;

/** How bytes of a picture become numbers: (byte / 255 - mean) / std. */
const SCALES: Record<string, { text: string; mean: number[]; std: number[] }> = {
  unit: { text: '0 to 1', mean: [0, 0, 0], std: [1, 1, 1] },
  signed: { text: '-1 to 1', mean: [0.5, 0.5, 0.5], std: [0.5, 0.5, 0.5] },
  bytes: { text: '0 to 255', mean: [0, 0, 0], std: [1 / 255, 1 / 255, 1 / 255] },
  imagenet: {
    text: 'as for ImageNet',
    mean: [0.485, 0.456, 0.406],
    std: [0.229, 0.224, 0.225],
  },
};

/** Fields for one input. */
export function inputFields(port: PortMeta, index: number): [HTMLElement, InputReader] {
  switch (port.kind) {
    case 'tensor':
      return tensorFields(port, index);
    case 'bool': {
      const box = make('input', { type: 'checkbox' });
      return [
        field(`Input ${index}: bool`, make('label', {}, box, ' true')),
        async () => box.checked,
      ];
    }
    case 'int':
    case 'double': {
      const box = make('input', {
        type: 'number',
        step: port.kind === 'int' ? '1' : 'any',
      });
      box.value = port.kind === 'int' ? String(port.min ?? 0) : '0';
      box.setAttribute('aria-label', `Input ${index}`);
      return [
        field(`Input ${index}: ${port.kind}`, box),
        async () => Number(box.value),
      ];
    }
    default:
      return [
        field(`Input ${index}`, 'is of a kind that no page can give'),
        () =>
          Promise.reject(new TypeError(`input ${index} must be a tensor or a number`)),
      ];
  }
}

function tensorFields(port: TensorPort, index: number): [HTMLElement, InputReader] {
  const { type } = port;
  if (type === undefined) {
    throw new TypeError(`input ${index} must have a known type, got another`);
  }
  const sizes = port.dims.map((dim, place) =>
    sizeField(dim, `Input ${index}, size ${place}`),
  );
  const fill = make('select', { 'aria-label': `Input ${index}, values` });
  for (const [value, text] of choices(port))
    fill.append(make('option', { value }, text));
  const numbers = make('textarea', {
    rows: '2',
    placeholder: 'numbers, with spaces or commas between them',
    'aria-label': `Input ${index}, numbers`,
  });
  const file = make('input', {
    type: 'file',
    accept: 'image/*',
    'aria-label': `Input ${index}, picture`,
  });
  const scale = make('select', { 'aria-label': `Input ${index}, scale` });
  for (const [value, { text }] of Object.entries(SCALES)) {
    scale.append(make('option', { value }, text));
  }
  const picture = make('div', { class: 'row' }, file, scale);
  const update = () => {
    numbers.hidden = fill.value !== 'numbers';
    picture.hidden = fill.value !== 'picture';
  };
  fill.addEventListener('change', update);
  update();
  const row = make('div', { class: 'row' }, ...sizes.map((each) => each.element), fill);
  const shape = port.dims
    .map((dim) => (typeof dim === 'number' ? dim : dim.name))
    .join(', ');
  const element = field(`Input ${index}: ${type} [${shape}]`, row, numbers, picture);
  const read = async () => {
    const dims = sizes.map((each) => each.read());
    if (fill.value === 'picture') {
      const [chosen] = file.files ?? [];
      if (!chosen)
        throw new TypeError(`input ${index}: a picture must be chosen, got none`);
      const [height = 1, width = 1] = dims.slice(-2);
      const { mean, std } = SCALES[scale.value] as { mean: number[]; std: number[] };
      return pictureTensor(chosen, {
        width,
        height,
        fit: 'crop',
        scale: 1 / 255,
        mean,
        std,
      });
    }
    const values = fill.value === 'numbers' ? parse(numbers.value, index) : undefined;
    return filled(type, dims, fill.value, values, index);
  };
  return [element, read];
}

function choices(port: TensorPort): [string, string][] {
  const isFloat = port.type?.includes('float') ?? false;
  const all: [string, string][] = [
    ['random', isFloat ? 'random, normal' : 'random, 0 or 1'],
    ['zeros', 'zeros'],
    ['ones', 'ones'],
    ['counting', '0, 1, 2 and so on'],
    ['numbers', 'numbers …'],
  ];
  // Indices and positions: numbers that are in range for most programs.
  if (!isFloat && port.type !== 'bool') all.unshift(...all.splice(3, 1));
  if (port.type === 'float32' && port.dims.length === 4 && port.dims[1] === 3) {
    all.push(['picture', 'a picture …']);
  }
  return all;
}

function sizeField(
  dim: TensorPort['dims'][number],
  label: string,
): { element: HTMLElement | string; read: () => number } {
  if (typeof dim === 'number') return { element: '', read: () => dim };
  const { name, min, max, step } = dim;
  const box = make('input', {
    type: 'number',
    min: String(min),
    max: String(max),
    step: String(step),
    value: String(max),
    'aria-label': `${label}, ${name}`,
  });
  const element = make('label', {}, `${name}, ${min} to ${max} `, box);
  return { element, read: () => Number(box.value) };
}

/** A tensor with made-up numbers, the same every time, or with given ones. */
export function filled(
  type: TensorType,
  dims: number[],
  how: string,
  given: number[] | undefined,
  seed: number,
): Tensor {
  const count = dims.reduce((product, size) => product * size, 1);
  if (given && given.length !== count) {
    throw new RangeError(
      `input ${seed} must have ${count} numbers for [${dims.join(', ')}], got ${given.length}`,
    );
  }
  const next = random(seed);
  const normal = () =>
    Math.sqrt(-2 * Math.log(1 - next())) * Math.cos(2 * Math.PI * next());
  const isFloat = type.includes('float');
  const value = (index: number): number => {
    if (given) return given[index] as number;
    if (how === 'zeros') return 0;
    if (how === 'ones') return 1;
    if (how === 'counting') return index;
    return isFloat ? normal() : Math.floor(next() * 2);
  };
  const numbers = Array.from({ length: count }, (_, index) => value(index));
  return tensorOf(type, numbers, dims);
}

// JavaScript has no numbers of 16 bits: their bits are given.
const SHORT = { float16: DType.Half, bfloat16: DType.BFloat16 } as const;

function tensorOf(type: TensorType, numbers: number[], dims: number[]): Tensor {
  if (type !== 'float16' && type !== 'bfloat16') return new Tensor(type, numbers, dims);
  const floats = new Uint8Array(Float32Array.from(numbers).buffer);
  const bits = new Uint16Array(numbers.length);
  const target = new Uint8Array(bits.buffer);
  fromStorage(SHORT[type], Storage.F32, floats, target, numbers.length);
  return new Tensor(type, bits, dims);
}

function parse(text: string, index: number): number[] {
  return text
    .split(/[\s,;[\]()]+/)
    .filter(Boolean)
    .map((word) => {
      const number = Number(word);
      if (Number.isNaN(number) && word.toLowerCase() !== 'nan') {
        throw new TypeError(`input ${index} must have numbers, got "${word}"`);
      }
      return number;
    });
}

function field(legend: string, ...content: (Node | string)[]): HTMLElement {
  return make('fieldset', {}, make('legend', {}, legend), ...content);
}
