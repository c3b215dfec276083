//! The names of messages: the number of the task, and which store it is in.
//!
//! A name is never used twice, in whatever store: receivers tell by it whether they have seen a message before.

use flowgate_tasks::TaskId;

/// Gives names, and reads them.
#[derive(Clone, Debug)]
pub(crate) struct Numbers {
    store: String,
}

impl Numbers {
    /// For the store of this mark: letters and digits.
    pub(crate) fn of(store: String) -> Self {
        Numbers { store }
    }

    /// The name of a message.
    pub(crate) fn message(&self, id: TaskId) -> String {
        self.name("msg_", id)
    }

    /// The name of a dead letter.
    pub(crate) fn dead(&self, id: TaskId) -> String {
        self.name("dlq_", id)
    }

    fn name(&self, kind: &str, id: TaskId) -> String {
        let mut name = String::with_capacity(kind.len() + self.store.len() + 16);
        name.push_str(kind);
        name.push_str(&self.store);
        put_hex(&mut name, id.0 as u64);
        name
    }

    /// The message of this name, if it can be one of this store.
    pub(crate) fn read_message(&self, name: &str) -> Option<TaskId> {
        self.read(name.strip_prefix("msg_")?)
    }

    /// The dead letter of this name, if it can be one of this store.
    pub(crate) fn read_dead(&self, name: &str) -> Option<TaskId> {
        self.read(name.strip_prefix("dlq_")?)
    }

    fn read(&self, rest: &str) -> Option<TaskId> {
        let digits = rest.strip_prefix(&self.store)?;
        let is_ours = digits.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
        i64::from_str_radix(digits, 16).ok().filter(|_| is_ours).map(TaskId)
    }
}

/// Writes a number in hexadecimal digits. Names are made for every message, several times, and a format costs ten times as much.
pub(crate) fn put_hex(text: &mut String, number: u64) {
    let digits = (u64::BITS - number.leading_zeros()).div_ceil(4).max(1);
    for at in (0..digits).rev() {
        text.push(char::from(b"0123456789abcdef"[(number >> (4 * at)) as usize & 0xf]));
    }
}

/// The same in decimal digits, for what is sent.
pub(crate) fn put_decimal(text: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    text.extend_from_slice(&digits[at..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_comes_back_in_its_own_store_and_in_no_other() {
        let numbers = Numbers::of("k3x9".into());
        let name = numbers.message(TaskId(48_879));
        assert_eq!(name, "msg_k3x9beef");
        for number in [0, 1, 15, 16, 255, 256, 0x0123_4567_89ab_cdef, u64::MAX] {
            let mut text = String::new();
            put_hex(&mut text, number);
            assert_eq!(text, format!("{number:x}"));
        }
        assert_eq!(numbers.read_message(&name), Some(TaskId(48_879)));
        assert_eq!(numbers.read_dead(&numbers.dead(TaskId(1))), Some(TaskId(1)));
        assert_eq!(Numbers::of("other".into()).read_message(&name), None);
        for name in [
            "",
            "msg_",
            "msg_k3x9",
            "msg_k3x9+1",
            "msg_k3x9-1",
            "msg_k3x9BEEF",
            "dlq_k3x91",
            "msg_k3x9fffffffffffffffff",
        ] {
            assert_eq!(numbers.read_message(name), None, "{name}");
        }
    }
}
