// y[n, c, z, y, x] = bias[c] + sum over taps of w[c, tap] * x[n, c / filters, z, pixel
// of the tap]; x is padded with zeros. An invocation computes four neighbouring outputs
// of p.down rows, from top to bottom: the rows under the kernel stay in registers.
// Supplied: column (the loop over rows, unrolled over taps because registers have no
// index), which uses STRIDE (of rows) and WARM (iterations before the first output,
// which only load); p: quads_x, strips (of p.down rows, in a plane), made (channels),
// filters (per input channel), out_z, out_y, x_offset, x_n, x_c, x_z (strides of x),
// stride_x, stride_z, pad_x, and what `column` reads.
fn invocation(job: i32) {
  let row = job / p.quads_x;
  let quad = job - row * p.quads_x;
  let plane = row / p.strips;
  let first = (row - plane * p.strips) * p.down;
  let of_all = plane / p.out_z;
  let z = plane - of_all * p.out_z;
  let image = of_all / p.made;
  let filter_ = of_all - image * p.made;
  let slice = p.x_offset + image * p.x_n + (filter_ / p.filters) * p.x_c
              + z * p.stride_z * p.x_z;
  column(plane, filter_, slice, quad, quad * 4 * p.stride_x - p.pad_x,
         first, min(first + p.down, p.out_y));
}
