// Library: from a grid's coordinates in [-1, 1] to positions in the input.
// Supplied: get_x, in_at, ALIGN_CORNERS, PADDING (0 zeros, 1 border, 2 reflection).
fn unnormalize(g: f32, extent: f32) -> f32 {
  if (ALIGN_CORNERS) { return (g + 1.0) * 0.5 * (extent - 1.0); }
  return ((g + 1.0) * extent - 1.0) * 0.5;
}
// Mirrored at the first and last element (or half an element beyond them).
fn reflect_position(at: f32, extent: f32) -> f32 {
  let low = select(-0.5, 0.0, ALIGN_CORNERS);
  let span = select(extent, extent - 1.0, ALIGN_CORNERS);
  if (span <= 0.0) { return 0.0; }
  let away = abs(at - low);
  let flips = floor(away / span);
  let extra = away - flips * span;
  let odd = flips - 2.0 * floor(flips * 0.5) != 0.0;
  return select(extra + low, span - extra + low, odd);
}
// A position as PADDING moves it into the input; a NaN goes to element 0.
fn padded_position(at: f32, d: i32) -> f32 {
  if (PADDING == 0) { return at; }
  let extent = f32(in_at(d));
  var moved = at;
  if (PADDING == 2) { moved = reflect_position(at, extent); }
  return select(clamp(moved, 0.0, extent - 1.0), 0.0, is_nan(moved));
}
// Positions so far out that they do not fit an i32 stay outside.
fn cell(at: f32) -> i32 {
  return i32(clamp(floor(at), -2.0e9, 2.0e9));
}
fn sample(plane: i32, z: i32, y: i32, x: i32) -> f32 {
  let inside = z >= 0 && z < in_at(0) && y >= 0 && y < in_at(1) && x >= 0 && x < in_at(2);
  if (!inside) { return 0.0; }
  return get_x(((plane * in_at(0) + z) * in_at(1) + y) * in_at(2) + x);
}
