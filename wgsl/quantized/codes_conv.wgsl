// Library: what codes_product needs for a convolution. Its rows x are filters, its
// columns w the pixels of all images, which have one zero point and one scale:
//   y[image, filter, pixel] = (dot - p.zero * sum of the filter) * p.scale * s[filter]
//                             + bias[filter]
// Supplied: get_s (scales of filters), bias_of, put_y; p: filters (of all groups),
// pixels (of one image), zero, scale.
fn row_zero(row: i32) -> i32 { return 0; }
fn scale_group(g: i32, column: i32, dots: vec4<i32>, sum: i32, zero: i32) -> vec4<f32> {
  return vec4<f32>(dots - p.zero * sum);
}
fn finish(row: i32, n: i32, v: f32) {
  let image = n / p.pixels;
  put_y((image * p.filters + row) * p.pixels + n - image * p.pixels,
        v * (p.scale * get_s(row)) + bias_of(row));
}
