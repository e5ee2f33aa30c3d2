// y[n, g, o, z, y, x] = bias + sum over taps, i of w[g, o, i, tap] * x[n, g, i, pixel of
// the tap], for few filters in a group; x is padded with zeros. An invocation computes
// four outputs, one below the other, of FILTERS filters, and loads each pixel that they
// share once. Neighbours compute neighbouring columns, so that their loads and stores
// are contiguous. With ALONE, a workgroup has a plane to itself: all its invocations
// need the same weights, which the compiler then loads as scalars.
// Supplied: strip (the loops over channels and taps, and the stores, unrolled because
// registers have no index), FILTERS, ALONE; p: planes (outputs of FILTERS filters of one
// image and z), jobs (strips of a plane), wide (columns of a plane), groups_of_plane
// (workgroups), blocks (of FILTERS, in a group), groups, filters and channels (per
// group), made_z (of outputs), x_offset, x_n, x_c (strides of x), and what `strip` reads.
struct Strip { image: i32, conv_group: i32, first: i32, z: i32, down: i32, column: i32 }

fn group_invocation(group: i32, id: i32) {
  // Unsigned, because that takes half the instructions of a signed division.
  var plane = u32(group) / u32(p.groups_of_plane);
  var job = u32(group - i32(plane) * p.groups_of_plane) * WG + u32(id);
  if (!ALONE) {
    job = u32(group) * WG + u32(id);
    plane = job / u32(p.jobs);
    job -= plane * u32(p.jobs);
  }
  if (plane >= u32(p.planes) || job >= u32(p.jobs)) { return; }
  let down = job / u32(p.wide);
  let column = job - down * u32(p.wide);
  let of_block = plane / u32(p.made_z);
  let z = plane - of_block * u32(p.made_z);
  let of_group = of_block / u32(p.blocks);
  let first = (of_block - of_group * u32(p.blocks)) * FILTERS;
  let image = of_group / u32(p.groups);
  let conv_group = of_group - image * u32(p.groups);
  let channels = p.x_offset + i32(image) * p.x_n + i32(conv_group) * p.channels * p.x_c;
  strip(Strip(i32(image), i32(conv_group), i32(first), i32(z), i32(down) * 4,
              i32(column)), channels);
}
