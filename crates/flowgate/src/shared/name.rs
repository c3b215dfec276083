//! The names that lanes have in a store.
//!
//! Owns how a key becomes one: a store bounds names, and cannot keep every character. A key that does not fit is kept by its
//! beginning and a hash of all of it, the same in every process.

/// The name of the limits that were declared last.
pub(crate) const LIMITS: &str = "limits";

/// Names stay far below what an index and a notification take.
const LONGEST: usize = 200;

/// The name of a key's lane.
pub(crate) fn of_key(key: &str) -> String {
    if key.len() <= LONGEST && !key.contains('\0') {
        return format!("k{key}");
    }
    let beginning: String = key.chars().filter(|character| *character != '\0').take(32).collect();
    format!("h{:032x}{beginning}", hash(key.as_bytes()))
}

/// FNV-1a of 128 bits.
pub(crate) fn hash(bytes: &[u8]) -> u128 {
    bytes.iter().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d, |hash: u128, byte| {
        (hash ^ u128::from(*byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
    })
}

#[cfg(test)]
mod tests {
    use super::of_key;

    #[test]
    fn g6_every_key_has_a_name_of_its_own_that_fits() {
        // Seen to fail: with long keys cut at 200 bytes, two of them shared a name; with `\0` left in, PostgreSQL would
        // not take it.
        let long = "x".repeat(10_000);
        let keys = ["", "a", "ka", "h", "\0", "\0\0", &long, &long[1..], "ä"];
        let names: std::collections::BTreeSet<String> = keys.iter().map(|key| of_key(key)).collect();
        assert_eq!(names.len(), keys.len());
        assert!(names.iter().all(|name| name.len() < 300 && !name.contains('\0')), "{names:?}");
    }
}
