// What codes_product needs for a convolution, whose rows are filters and whose columns
// are pixels of all images, with one zero point and one scale for all columns:
//   y[image, filter, pixel] = (sum - zero * sum of the filter) * scale + bias
// Supplied: get_s (scales of filters), bias_of, put_y; p: filters (of all groups),
// pixels (of one image), zero, scale.
fn row_zero(row: i32) -> i32 { return 0; }
fn fold(g: i32, column: i32, dots: vec4<i32>, sum: i32, zero: i32) -> vec4<f32> {
  return vec4<f32>(dots - p.zero * sum);
}
fn finish(row: i32, n: i32, v: f32) {
  let image = n / p.pixels;
  put_y((image * p.filters + row) * p.pixels + n - image * p.pixels,
        v * (p.scale * get_s(row)) + bias_of(row));
}
