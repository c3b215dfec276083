//! Which name was probably meant.
//!
//! Owns the distance between two names: letters added, left out, changed, or swapped with their neighbour.

/// A name longer than this is no slip in one of ours.
const LONGEST: usize = 64;

/// The nearest of `names`, if it is near enough: a third of its letters may be wrong.
pub(crate) fn suggestion<'n>(name: &str, names: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let names = names.filter(|_| name.len() <= LONGEST);
    let near = names.map(|known| (distance(name, known), known));
    let near = near.filter(|(distance, known)| *distance <= (known.len().max(name.len()) / 3).max(1));
    near.min_by_key(|(distance, _)| *distance).map(|(_, known)| known)
}

fn distance(one: &str, other: &str) -> usize {
    let one: Vec<char> = one.chars().collect();
    let other: Vec<char> = other.chars().collect();
    // Rows of the table: what it takes to make `other[..column]` of `one[..row]`.
    let mut rows: Vec<Vec<usize>> = vec![(0..=other.len()).collect()];
    for row in 1..=one.len() {
        let mut costs = vec![row];
        for column in 1..=other.len() {
            let is_other = usize::from(one[row - 1] != other[column - 1]);
            let left_out = rows[row - 1][column] + 1;
            let added = costs[column - 1] + 1;
            let changed = rows[row - 1][column - 1] + is_other;
            let mut cost = left_out.min(added).min(changed);
            let is_swap = row > 1
                && column > 1
                && one[row - 1] == other[column - 2]
                && one[row - 2] == other[column - 1];
            if is_swap {
                cost = cost.min(rows[row - 2][column - 2] + 1);
            }
            costs.push(cost);
        }
        rows.push(costs);
    }
    rows[one.len()][other.len()]
}

#[cfg(test)]
mod tests {
    use super::{distance, suggestion};

    #[test]
    fn slips_cost_one_each() {
        // Seen to fail: without the swap, `naem` costs two.
        for (one, other, cost) in [
            ("", "", 0),
            ("max", "max", 0),
            ("max_que", "max_queue", 2),
            ("naem", "name", 1),
            ("lisen", "listen", 1),
            ("mox", "max", 1),
            ("", "max", 3),
            ("kitten", "sitting", 3),
        ] {
            assert_eq!((distance(one, other), distance(other, one)), (cost, cost), "{one} {other}");
        }
    }

    #[test]
    fn the_nearest_is_suggested_and_nothing_far() {
        let names = ["max", "max_queue", "max_keys", "rate"];
        for (name, near) in [
            ("max_que", Some("max_queue")),
            ("maxkeys", Some("max_keys")),
            ("Max", Some("max")),
            ("rates", Some("rate")),
            ("colour", None),
            ("", None),
            (&"max".repeat(40), None),
        ] {
            assert_eq!(suggestion(name, names.into_iter()), near, "{name}");
        }
    }
}
