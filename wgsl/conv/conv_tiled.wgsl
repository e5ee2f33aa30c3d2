// Convolution as an implicit matrix product, whose im2col is never stored: the loads of
// the pixels, and the stores, of tile.wgsl. The batch is the groups, rows are filters,
// columns pixels of all images, and k the taps of all channels, x first, channels last.
// An invocation finds its pixels once; in every slice it finds the tap of its k, by
// divisions by constants, and loads without branches: what is padding becomes zero.
// Supplied: get_x, bias_of, put_pixels (stores up to four), KERNEL_X, KERNEL_Y,
// KERNEL_Z, IS_PLANE (z is always 0); p: groups, filters and channels (per group), k
// (channels * taps), pixels (of all images); made_ (outputs), size_, stride_, pad_ and
// dilation_ of z, y, x; a_offset, w_g, x_n, x_c, x_z, x_y, x_x, x_offset (strides).

// Of four neighbouring pixels: where the first tap is, in x, y, z and in the store.
struct BPlace { x: vec4<i32>, y: vec4<i32>, z: vec4<i32>, at: vec4<i32> }

fn a_matrix(group: i32) -> i32 { return p.a_offset + group * p.w_g; }
fn b_matrix(group: i32) -> i32 { return p.x_offset + group * p.channels * p.x_c; }

fn b_place(base: i32, column: i32) -> BPlace {
  // Unsigned, because that takes half the instructions of a signed division.
  let pixels = min(column + vec4<i32>(0, 1, 2, 3), vec4<i32>(p.pixels - 1));
  let at = vec4<u32>(pixels);
  let a = at / u32(p.made_x);
  let b = a / u32(p.made_y);
  let image = b / u32(p.made_z);
  let x = vec4<i32>(at - a * u32(p.made_x)) * p.stride_x - p.pad_x;
  let y = vec4<i32>(a - b * u32(p.made_y)) * p.stride_y - p.pad_y;
  let z = vec4<i32>(b - image * u32(p.made_z)) * p.stride_z - p.pad_z;
  let start = base + vec4<i32>(image) * p.x_n;
  return BPlace(x, y, z, start + z * p.x_z + y * p.x_y + x * p.x_x);
}
fn b_load(place: BPlace, k: i32) -> vec4<E> {
  let inside = min(u32(k), u32(p.k - 1));
  let a = inside / KERNEL_X;
  let b = a / KERNEL_Y;
  let channel = i32(b / KERNEL_Z);
  let dx = i32(inside % KERNEL_X) * p.dilation_x;
  let dy = i32(a % KERNEL_Y) * p.dilation_y;
  let dz = i32(b % KERNEL_Z) * p.dilation_z;
  let at = place.at + channel * p.x_c + dz * p.x_z + dy * p.x_y + dx * p.x_x;
  // As unsigned numbers, those below zero are too large.
  var is_pixel = vec4<u32>(place.x + dx) < vec4<u32>(u32(p.size_x));
  is_pixel &= vec4<u32>(place.y + dy) < vec4<u32>(u32(p.size_y));
  if (!IS_PLANE) {
    is_pixel &= vec4<u32>(place.z + dz) < vec4<u32>(u32(p.size_z));
  }
  is_pixel &= vec4<bool>(k < p.k);
  let safe = select(vec4<i32>(p.x_offset), at, is_pixel);
  let v = vec4<f32>(get_x(safe.x), get_x(safe.y), get_x(safe.z), get_x(safe.w));
  return vec4<E>(select(vec4<f32>(), v, is_pixel));
}
fn store_quad(group: i32, filter_: i32, at: i32, v: vec4<f32>) {
  if (filter_ < p.filters && at < p.pixels) {
    let channel = group * p.filters + filter_;
    put_pixels(channel, at, v + bias_of(channel));
  }
}
