// y = (x - shift) * scale * weight + bias, with statistics per row or per channel.
// One element per invocation: the grid's x is the index in a row, y and z give the row,
// so that a whole workgroup uses the statistics of one row.
// Channel of element r of row o: (o * per_row + r / inner) % channels.
// Supplied: shift_at, scale_at (of a row or channel), affine (of a channel), get_x,
// put_y, p.rows, p.count, p.per_row, p.inner, p.channels, BY_CHANNEL, BY_ELEMENT
// (inner is 1), WG.
@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) gid: vec3<u32>,
        @builtin(num_workgroups) groups: vec3<u32>) {
  let r = i32(gid.x);
  let o = i32(gid.y + gid.z * groups.y);
  if (r >= p.count || o >= p.rows) { return; }
  var within = r;
  if (!BY_ELEMENT) { within = r / p.inner; }
  let channel = (o * p.per_row) % p.channels + within;
  let k = select(o, channel, BY_CHANNEL);
  let i = o * p.count + r;
  put_y(i, affine((get_x(i) - shift_at(k)) * scale_at(k), channel));
}
