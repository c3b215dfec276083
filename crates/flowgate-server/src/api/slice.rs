//! Lists are read and told in slices of bytes, not of rows: bodies are large or small, memory is neither.

/// So much of what is stored is read for a list at once, as far as what came before tells.
const READ: usize = 8 * 1024 * 1024;
/// So much of bodies is told on one page; then the cursor goes on.
pub(super) const TOLD: usize = 8 * 1024 * 1024;
/// The first read knows nothing of how large rows are: of the largest bodies there are, so many are little enough.
const FIRST: u32 = 4;
const MOST: u32 = 500;

/// How many rows to read next: as many as have room, if they are as large as those before.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slice {
    rows: u32,
}

impl Slice {
    pub(super) fn first() -> Self {
        Slice { rows: FIRST }
    }

    /// Up to so many, if more are not wanted. One more than is wanted tells whether there are more.
    pub(super) fn up_to(self, wanted: usize) -> u32 {
        self.rows.min(u32::try_from(wanted).unwrap_or(MOST))
    }

    /// After rows of these sizes. It grows slowly, for the next ones may be larger, and shrinks at once.
    pub(super) fn after(self, sizes: impl Iterator<Item = usize>) -> Self {
        let largest = sizes.max().unwrap_or_default().max(1);
        let room = u32::try_from(READ / largest).unwrap_or(MOST);
        Slice { rows: room.min(self.rows.saturating_mul(8)).clamp(1, MOST) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s4_a_slice_has_room_for_rows_as_large_as_those_before() {
        // Seen to fail: with the average instead of the largest, one large row among small ones counted for nothing.
        let first = Slice::first();
        assert_eq!(first.up_to(1000), FIRST);
        assert_eq!(first.up_to(2), 2);
        let small = first.after([100, 200].into_iter());
        assert_eq!(small.up_to(1000), 32);
        let large = small.after([100, 100, 8 * 1024 * 1024].into_iter());
        assert_eq!(large.up_to(1000), 1);
        let most = (0..10).fold(large, |slice, _| slice.after([100].into_iter()));
        assert_eq!(most.up_to(1000), MOST);
    }
}
