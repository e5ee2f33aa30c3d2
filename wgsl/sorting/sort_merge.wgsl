// Merges neighbouring sorted runs of each row into runs of twice the width, keeping
// the first p.keep: an element's rank is the one in its own run plus the number of
// elements of the other run that come before it. One element per invocation.
// A run stands for p.width elements of a row of p.length and has room for p.slot.
// Supplied: before(a, b), get_value_in, get_index_in, put_value, put_index, p.length,
// p.width, p.slot, p.row, p.keep, p.out_slot, p.out_row.
fn run_length(run: i32) -> i32 {
  return clamp(p.length - run * p.width, 0, p.slot);
}

fn invocation(i: i32) {
  let row = i / p.row;
  let within = i - row * p.row;
  let run = within / p.slot;
  let e = within - run * p.slot;
  if (e >= run_length(run)) { return; }
  let v = get_value_in(i);
  let other = run ^ 1;
  let left = (run & 1) == 0;
  let base = row * p.row + other * p.slot;
  var low = 0;
  var high = run_length(other);
  while (low < high) {
    let middle = (low + high) / 2;
    let w = get_value_in(base + middle);
    // On equal elements those of the left run come first.
    let ahead = select(!before(v, w), before(w, v), left);
    if (ahead) { low = middle + 1; } else { high = middle; }
  }
  let rank = e + low;
  if (rank < p.keep) {
    let at = row * p.out_row + (run / 2) * p.out_slot + rank;
    put_value(at, v);
    put_index(at, get_index_in(i));
  }
}
