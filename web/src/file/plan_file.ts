/**
 * The delegate's bytes to its plans.
 *
 * The bytes are the graph, which a player skips, and then the plans, each a header and
 * a flatbuffer. A file may be anybody's: what leaves here has been checked throughout.
 */

import { WebGPUError } from '../errors';
import { checkPlans, type UncheckedPlans } from './check_plans';
import { FlatBytes, FlatTable, type Wide } from './flat';
import { crc32 } from './hashes';
import type {
  Access,
  DType,
  Guard,
  Instruction,
  Operator,
  PlanDispatch,
  PlanKernel,
  PlanLimit,
  PlanPort,
  Plans,
  PlanVariant,
  Role,
  Storage,
} from './plans';

const HEADER = 16;
const ALIGN = 16;
const FORMAT = 1;
const MAX_BYTES = 2 ** 28;

function refuse(text: string): never {
  throw new WebGPUError('DelegateInvalidCompatibility', text);
}

function hexWord(number: number): string {
  return `0x${number.toString(16).padStart(8, '0')}`;
}

/** Some bytes of the delegate, from a header on. */
interface Section {
  body: Uint8Array;
  format: number;
  checksum: number;
}

function readSection(bytes: Uint8Array, magic: string): Section {
  const size = bytes.byteLength;
  if (size < HEADER || String.fromCharCode(...bytes.subarray(0, 4)) !== magic) {
    refuse(`delegate blob must have a section ${magic}, got none in ${size} bytes`);
  }
  const view = new DataView(bytes.buffer, bytes.byteOffset, HEADER);
  const length = view.getUint32(8, true);
  if (length > MAX_BYTES) {
    refuse(`delegate blob must have at most ${MAX_BYTES} bytes, got ${length}`);
  }
  if (length > size - HEADER) {
    refuse(`delegate blob must have ${length} bytes, got ${size - HEADER}`);
  }
  return {
    body: bytes.subarray(HEADER, HEADER + length),
    format: view.getUint32(4, true),
    checksum: view.getUint32(12, true),
  };
}

function checkSection({ body, format, checksum }: Section): void {
  if (format < 1 || format > FORMAT) {
    refuse(
      `delegate's plans must have format ${FORMAT} or older, got ${format}` +
        '; upgrade executorch-webgpu or export again',
    );
  }
  const found = crc32(body);
  if (found !== checksum) {
    refuse(
      `delegate's plans must have checksum ${hexWord(checksum)}, got ` +
        `${hexWord(found)}; the file is damaged`,
    );
  }
}

type UncheckedSymbol = UncheckedPlans['symbols'][number];
type UncheckedBuffer = UncheckedPlans['buffers'][number];
type UncheckedConstant = UncheckedPlans['constants'][number];
type UncheckedProfile = UncheckedPlans['profiles'][number];

function readSymbol(table: FlatTable): UncheckedSymbol {
  return {
    name: table.text(0),
    low: table.i64(1),
    high: table.i64(2),
    input: table.u32(3),
    dim: table.i32(4),
    divisor: table.i64(5, 1),
    offset: table.i64(6),
  };
}

function readInstruction(bytes: FlatBytes, at: number): Instruction {
  return {
    operator: bytes.u8(at) as Operator,
    left: bytes.u32(at + 4),
    right: bytes.u32(at + 8),
  };
}

function readKernel(table: FlatTable): PlanKernel {
  return {
    label: table.text(0),
    lines: table.u32s(1),
    access: table.bytesOf(2) as Access[],
    subgroups: table.flag(3),
  };
}

function readBuffer(table: FlatTable): UncheckedBuffer {
  return { role: table.u8(0) as Role, size: table.u64(1), key: table.text(2) };
}

function readConstant(table: FlatTable): UncheckedConstant {
  return {
    buffer: table.u32(0),
    dataKey: table.text(1),
    dtype: table.i8(2) as DType,
    storage: table.u8(3) as Storage,
    shape: table.u64s(4),
  };
}

function readLimit(table: FlatTable): PlanLimit {
  return {
    label: table.text(0),
    add: table.u32(1),
    count: table.u32(2),
    length: table.u32(3),
  };
}

function readPort(table: FlatTable): PlanPort {
  return {
    name: table.text(0),
    isInt: table.flag(1),
    buffer: table.i32(2, -1),
    dtype: table.i8(3) as DType,
    storage: table.u8(4) as Storage,
    shape: table.u32s(5),
    value: table.u32(6),
    limits: table.tables(7, readLimit),
    wanted: table.text(8),
  };
}

function readDispatch(table: FlatTable): PlanDispatch {
  return {
    kernel: table.u32(0),
    buffers: table.u32s(1),
    ranges: table.u32s(2),
    params: table.u32s(3),
    groups: table.u32s(4),
    label: table.text(5),
    call: table.u32(6),
  };
}

// Any register is on the same side of an end beyond 53 bits as of the nearest double.
function guardEnd(value: Wide): number {
  return Number(value);
}

function readGuard(bytes: FlatBytes, at: number): Guard {
  return {
    register: bytes.u32(at),
    low: guardEnd(bytes.i64(at + 8)),
    high: guardEnd(bytes.i64(at + 16)),
  };
}

function readVariant(table: FlatTable): PlanVariant {
  return {
    guards: table.elements(0, 24, (at) => readGuard(table.bytes, at)),
    dispatches: table.u32s(1),
    inputs: table.u32s(2),
    outputs: table.u32s(3),
    status: table.i32(4, -1),
  };
}

function readProfile(table: FlatTable): UncheckedProfile {
  return {
    name: table.text(0),
    f16: table.flag(1),
    subgroups: table.flag(2),
    maxStorageBuffers: table.u32(3),
    maxBinding: table.u64(4),
    maxBuffer: table.u64(5),
    maxWorkgroups: table.u32(6),
    maxInvocations: table.u32(7),
    workgroupMemory: table.u32(8),
    offsetAlign: table.u32(9),
    variants: table.tables(10, readVariant),
    isCpu: table.flag(11),
  };
}

function readRoot(table: FlatTable): UncheckedPlans {
  return {
    format: table.u32(0),
    writer: table.text(1),
    symbols: table.tables(2, readSymbol),
    literals: table.i64s(3),
    code: table.elements(4, 12, (at) => readInstruction(table.bytes, at)),
    lines: table.texts(5),
    kernels: table.tables(6, readKernel),
    buffers: table.tables(7, readBuffer),
    constants: table.tables(8, readConstant),
    ports: table.tables(9, readPort),
    dispatches: table.tables(10, readDispatch),
    profiles: table.tables(11, readProfile),
  };
}

/** Throws if there are no plans, or they are damaged, or from a newer version. */
export function readPlans(bytes: Uint8Array): Plans {
  const graph = readSection(bytes, 'EWGB');
  const end = HEADER + graph.body.byteLength;
  const start = Math.ceil(end / ALIGN) * ALIGN;
  if (start >= bytes.byteLength) {
    refuse(
      'delegate must carry plans, got none; export with' +
        ' WebGPUPartitioner(portable=True)',
    );
  }
  const section = readSection(bytes.subarray(start), 'EWGP');
  checkSection(section);
  const flat = new FlatBytes(
    section.body,
    'DelegateInvalidCompatibility',
    "the delegate's plans must follow their schema",
  );
  const plans = readRoot(FlatTable.root(flat, 'EWP1'));
  checkPlans(plans);
  return plans;
}
