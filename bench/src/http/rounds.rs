//! Rounds in which everybody has a turn.

use crate::measure::median;

/// The medians of what `measure` says of each of `N` subjects, `M` figures each: all of them in each round, and in turn each
/// one first. Ends with the first that cannot be measured.
pub(super) fn in_turn<const N: usize, const M: usize>(
    rounds: usize,
    mut measure: impl FnMut(usize) -> Result<[f64; M], String>,
) -> Result<[[f64; M]; N], String> {
    let mut seen: [[Vec<f64>; M]; N] = std::array::from_fn(|_| std::array::from_fn(|_| Vec::new()));
    for round in 0..rounds {
        for turn in 0..N {
            let index = (round + turn) % N;
            for (seen, figure) in seen[index].iter_mut().zip(measure(index)?) {
                seen.push(figure);
            }
        }
    }
    Ok(seen.map(|figures| figures.map(median)))
}

#[cfg(test)]
mod tests {
    use super::in_turn;

    #[test]
    fn everybody_comes_first_once() {
        let mut order = Vec::new();
        let medians = in_turn::<2, 2>(2, |index| {
            order.push(index);
            Ok([index as f64, 7.0])
        });
        assert_eq!(order, [0, 1, 1, 0]);
        assert_eq!(medians, Ok([[0.0, 7.0], [1.0, 7.0]]));
        assert_eq!(in_turn::<1, 1>(1, |_| Err("no".to_owned())), Err("no".to_owned()));
    }
}
