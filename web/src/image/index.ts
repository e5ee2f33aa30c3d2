/**
 * Pictures for models: files, cameras and canvases to tensors, tensors to pictures.
 * @packageDocumentation
 */

export {
  asTensor,
  copyPart,
  enlarge,
  pictureTensor,
  type TileOptions,
  type TileSpec,
  tensorMask,
  tensorPicture,
} from './pictures';
export { type Picture, readPixels, show, toBlob, toImageData } from './pixels';
export { crop, type Filter, type Pixels, resize } from './resize';
export {
  cutOut,
  fitPicture,
  fromNumbers,
  type ImageSpec,
  maskPicture,
  normalizeMask,
  toNumbers,
} from './tensors';
export { type Tile, tilesOf } from './tiles';
