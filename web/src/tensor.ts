/** Tensors: what goes into a call and comes out of it, in host memory or on a GPU. */

import { WebGPUError } from './errors';
import { DType } from './file/plans';
import { BufferPlace } from './gpu/buffer_place';

/** The element types, by PyTorch's names. */
export type TensorType =
  | 'float32'
  | 'float16'
  | 'bfloat16'
  | 'int64'
  | 'int32'
  | 'int16'
  | 'int8'
  | 'uint8'
  | 'bool';

/** What holds the elements in host memory. */
export type TensorData =
  | Float32Array<ArrayBuffer>
  | Uint16Array<ArrayBuffer>
  | BigInt64Array<ArrayBuffer>
  | Int32Array<ArrayBuffer>
  | Int16Array<ArrayBuffer>
  | Int8Array<ArrayBuffer>
  | Uint8Array<ArrayBuffer>;

/** How a GPU buffer holds elements: int64, for one, as i32. */
export type BufferStorage = 'f32' | 'f16' | 'i32';

interface TypeInfo {
  dtype: DType;
  bytes: number;
  /** Of a caller's own buffer, unless it says otherwise. */
  storage: BufferStorage;
  array: {
    new (length: number): TensorData;
    new (buffer: ArrayBuffer, start: number, length: number): TensorData;
  };
}

const TYPES: Record<TensorType, TypeInfo> = {
  float32: { dtype: DType.Float, bytes: 4, storage: 'f32', array: Float32Array },
  float16: { dtype: DType.Half, bytes: 2, storage: 'f16', array: Uint16Array },
  bfloat16: { dtype: DType.BFloat16, bytes: 2, storage: 'f32', array: Uint16Array },
  int64: { dtype: DType.Long, bytes: 8, storage: 'i32', array: BigInt64Array },
  int32: { dtype: DType.Int, bytes: 4, storage: 'i32', array: Int32Array },
  int16: { dtype: DType.Short, bytes: 2, storage: 'i32', array: Int16Array },
  int8: { dtype: DType.Char, bytes: 1, storage: 'i32', array: Int8Array },
  uint8: { dtype: DType.Byte, bytes: 1, storage: 'i32', array: Uint8Array },
  bool: { dtype: DType.Bool, bytes: 1, storage: 'i32', array: Uint8Array },
};

const NAMES = new Map(
  Object.entries(TYPES).map(([name, info]) => [info.dtype, name as TensorType]),
);

/** The name of one of ExecuTorch's ScalarTypes; undefined if no tensor can have it. */
export function typeName(scalarType: number): TensorType | undefined {
  return NAMES.get(scalarType as DType);
}

/** Facts about an element type. */
export function typeInfo(type: TensorType): TypeInfo {
  const info = TYPES[type];
  if (info === undefined) {
    const names = Object.keys(TYPES).join(', ');
    throw new WebGPUError(
      'InvalidArgument',
      `Tensor: type must be one of ${names}, got ${String(type)}`,
    );
  }
  return info;
}

/** How many elements a shape has. */
export function countOf(dims: readonly number[]): number {
  return dims.reduce((count, extent) => count * extent, 1);
}

// Newer browsers have an array for halves, whose elements are numbers.
type HalfArray = new (buffer: ArrayBuffer, start: number, length: number) => TensorData;
const Halves = (globalThis as unknown as { Float16Array?: HalfArray }).Float16Array;

/** The elements in `bytes`, which start at a multiple of eight, without a copy. */
export function asData(type: TensorType, bytes: Uint8Array<ArrayBuffer>): TensorData {
  const info = typeInfo(type);
  const length = bytes.byteLength / info.bytes;
  const array = type === 'float16' && Halves !== undefined ? Halves : info.array;
  return new array(bytes.buffer, bytes.byteOffset, length);
}

/** Elements that are not in host memory. */
export interface Place {
  /** The GPU's buffer, where this thread can use it. */
  readonly gpu: BufferPlace | undefined;
  /** Its number, where another thread has it. */
  readonly remote: number | undefined;
  read(type: TensorType, count: number): Promise<TensorData>;
  /** One more tensor has it. */
  share(): void;
  /** One tensor less has it; what nobody has is freed. */
  release(): void;
}

/** What is known of a caller's own buffer. */
export interface GpuBufferOptions {
  type: TensorType;
  dims: readonly number[];
  /** The device that made the buffer. */
  device: GPUDevice;
  /** How the buffer holds the elements; by default f32, f16 or i32, as the type says. */
  storage?: BufferStorage;
}

function checkDims(dims: readonly number[]): void {
  for (const extent of dims) {
    if (!Number.isSafeInteger(extent) || extent < 0) {
      throw new WebGPUError(
        'InvalidArgument',
        `Tensor: sizes must be whole numbers from 0 on, got [${dims.join(', ')}]`,
      );
    }
  }
}

// Numbers as the caller has them become what the type is held in.
function toData(
  type: TensorType,
  data: ArrayBufferView | ArrayLike<number | bigint | boolean>,
): TensorData {
  const info = typeInfo(type);
  if (ArrayBuffer.isView(data)) {
    if (type === 'float16' && Halves !== undefined && data instanceof Halves) {
      return data as TensorData;
    }
    if (data instanceof info.array) {
      return data as TensorData;
    }
    throw new WebGPUError(
      'InvalidArgument',
      `Tensor: the data of ${type} must be ${info.array.name}, got ${data.constructor.name}`,
    );
  }
  if (type === 'float16' || type === 'bfloat16') {
    throw new WebGPUError(
      'InvalidArgument',
      `Tensor: the data of ${type} must be ${info.array.name}, got an array`,
    );
  }
  const made = new info.array(data.length);
  for (let i = 0; i < data.length; i++) {
    const value = data[i] ?? 0;
    made[i] = made instanceof BigInt64Array ? BigInt(value) : Number(value);
  }
  return made;
}

// Only this package makes tensors of a place: the constructor that people see has data.
const PLACED = Symbol('placed');

/**
 * An array of numbers with a type and a shape.
 *
 * ```ts
 * const x = new Tensor('float32', new Float32Array(12), [3, 4]);
 * const [y] = await module.forward([x]);
 * console.log(y.dims, await y.data());
 * ```
 *
 * The result of a call is on the GPU until `data()` is called, and may be an input of
 * the next call without being read. int64 is a BigInt64Array, bool a Uint8Array of 0 and
 * 1, float16 a Float16Array where the browser has one and else a Uint16Array of its
 * bits, and bfloat16 a Uint16Array of its bits.
 */
export class Tensor {
  readonly type: TensorType;
  readonly dims: readonly number[];
  /** How many elements there are. */
  readonly size: number;
  #data: TensorData | undefined;
  #place: Place | undefined;
  #reading: Promise<TensorData> | undefined;

  /**
   * A tensor in host memory, whose elements are not copied until a call needs them.
   *
   * @param data a typed array as the type wants it, or an array of numbers, bigints or
   * booleans
   */
  constructor(
    type: TensorType,
    data: ArrayBufferView | ArrayLike<number | bigint | boolean>,
    dims: readonly number[],
  );
  /** @internal */
  constructor(type: TensorType, place: Place, dims: readonly number[], mark: symbol);
  constructor(type: TensorType, data: unknown, dims: readonly number[], mark?: symbol) {
    checkDims(dims);
    this.type = type;
    this.dims = Object.freeze([...dims]);
    this.size = countOf(dims);
    if (mark === PLACED) {
      this.#place = data as Place;
      return;
    }
    this.#data = toData(type, data as ArrayBufferView);
    if (this.#data.length !== this.size) {
      throw new WebGPUError(
        'InvalidArgument',
        `Tensor: data of shape [${dims.join(', ')}] must have ${this.size} elements, ` +
          `got ${this.#data.length}`,
      );
    }
  }

  /** A tensor of elements that are somewhere else. @internal */
  static placed(type: TensorType, place: Place, dims: readonly number[]): Tensor {
    return new Tensor(type, place, dims, PLACED);
  }

  /**
   * A tensor in a buffer of the caller's, which must have usage COPY_SRC. It is never
   * destroyed by this package, and must not change before calls that use it are done.
   */
  static fromGpuBuffer(buffer: GPUBuffer, options: GpuBufferOptions): Tensor {
    const { type, dims, device } = options;
    const storage = options.storage ?? typeInfo(type).storage;
    checkDims(dims);
    const wanted = Math.ceil((countOf(dims) * (storage === 'f16' ? 2 : 4)) / 4) * 4;
    if (buffer.size < wanted) {
      throw new WebGPUError(
        'InvalidArgument',
        `Tensor: a buffer of [${dims.join(', ')}] as ${storage} must have ${wanted} ` +
          `bytes, got ${buffer.size}`,
      );
    }
    if ((buffer.usage & 4) === 0) {
      throw new WebGPUError(
        'InvalidArgument',
        `Tensor: a buffer must have usage COPY_SRC, got ${buffer.usage}`,
      );
    }
    return Tensor.placed(type, new BufferPlace({ device, buffer, storage }), dims);
  }

  /**
   * The elements in host memory. What was on the GPU is read once, and its buffer is
   * freed: a loop that reads its results needs no `dispose()`. With `keep`, it stays.
   */
  async data(options: { keep?: boolean } = {}): Promise<TensorData> {
    let data = this.#data;
    if (data === undefined) {
      this.#reading ??= this.#alive().read(this.type, this.size);
      data = await this.#reading;
      // If it was disposed of meanwhile, who waits still gets what was asked for.
      this.#data = this.#place === undefined ? undefined : data;
    }
    if (options.keep !== true) {
      this.#letGo();
    }
    return data;
  }

  /** Where the elements are on the GPU; undefined if they are not on this thread's. */
  get gpuBuffer(): GPUBuffer | undefined {
    return this.#place?.gpu?.buffer;
  }

  /** How `gpuBuffer` holds the elements. */
  get gpuStorage(): BufferStorage | undefined {
    return this.#place?.gpu?.storage;
  }

  /** Frees what the tensor holds; a caller's own buffer stays. */
  dispose(): void {
    this.#data = undefined;
    this.#letGo();
  }

  /** The elements, if they are in host memory. @internal */
  get host(): TensorData | undefined {
    return this.#data;
  }

  /** @internal */
  get place(): Place | undefined {
    return this.#place;
  }

  /** The same elements, without a copy, in another shape. @internal */
  reshaped(dims: readonly number[]): Tensor {
    if (this.#data !== undefined) {
      return new Tensor(this.type, this.#data, dims);
    }
    const place = this.#alive();
    place.share();
    return Tensor.placed(this.type, place, dims);
  }

  #alive(): Place {
    if (this.#place === undefined) {
      throw new WebGPUError(
        'InvalidState',
        `Tensor: [${this.dims.join(', ')}] of ${this.type} must be alive, got disposed`,
      );
    }
    return this.#place;
  }

  #letGo(): void {
    this.#place?.release();
    this.#place = undefined;
    this.#reading = undefined;
  }
}
