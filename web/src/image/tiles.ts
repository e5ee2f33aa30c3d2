/** A picture of any size through a model of one size: in tiles that overlap. */

/** One tile: where it is read, and which part of what comes out is kept. */
export interface Tile {
  /** Of the input's corner; may lie outside of the picture, where its border repeats. */
  left: number;
  top: number;
  /** What is kept of the tile, in input pixels from the tile's corner. */
  x: number;
  y: number;
  width: number;
  height: number;
}

/**
 * Tiles that cover width x height. Each is `size` wide and high, and gives away `border`
 * pixels on each side that has a neighbour, so that no seam is seen: a convolution near
 * the edge of its input has seen less of the picture.
 */
export function tilesOf(
  width: number,
  height: number,
  size: [number, number],
  border: number,
): Tile[] {
  const rows = spans(height, size[1], border);
  const columns = spans(width, size[0], border);
  return rows.flatMap((row) =>
    columns.map((column) => ({
      left: column.start,
      top: row.start,
      x: column.keep,
      y: row.keep,
      width: column.count,
      height: row.count,
    })),
  );
}

interface Piece {
  start: number;
  keep: number;
  count: number;
}

function spans(length: number, size: number, border: number): Piece[] {
  const step = Math.max(1, size - 2 * border);
  if (length <= size) return [{ start: 0, keep: 0, count: length }];
  const result: Piece[] = [];
  let done = 0;
  while (done < length) {
    // The last tile ends with the picture, so that all of its input is real.
    const start = Math.min(Math.max(done - border, 0), length - size);
    const last = start + size >= length;
    const end = last ? length : Math.min(start + border + step, start + size - border);
    result.push({ start, keep: done - start, count: end - done });
    done = end;
  }
  return result;
}
