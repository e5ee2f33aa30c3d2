/**
 * Runs PyTorch models, exported with ExecuTorch and `WebGPUPartitioner(portable=True)`,
 * on WebGPU.
 * @packageDocumentation
 */

export { CODES, type Code, WebGPUError } from './errors';
export type { DynamicSize, MethodMeta, PortMeta } from './meta';
export type { Input, Output } from './method';
export {
  type ExecuteOptions,
  type LoadOptions,
  type Lost,
  Module,
  type ModuleInput,
  type Progress,
  type Stats,
} from './module';
export { numbersOf } from './numbers';
export type { Requirements } from './open';
export type { DispatchTime } from './player/replay';
export type { Profile, ProfileRow } from './profile_table';
export { clearCache } from './source';
export {
  type BufferStorage,
  type GpuBufferOptions,
  Tensor,
  type TensorData,
  type TensorType,
} from './tensor';
export type { Verified, VerifyOptions } from './verify';
export {
  createWorker,
  ModuleWorker,
  RemoteModule,
  serveWorker,
  type WorkerOptions,
} from './worker/create';
