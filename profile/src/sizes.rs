//! Histogram of message lengths.

use serde::{Deserialize, Serialize};

/// Number of classes: one for each bit count of a length.
pub const CLASSES: usize = u64::BITS as usize + 1;

/// Message counts by length in bytes: class 0 has the empty messages, class `b` has lengths from 2^(b-1) to 2^b - 1.
///
/// ```
/// use counterfoil_profile::Sizes;
///
/// let mut sizes = Sizes::default();
/// sizes.add(0);
/// sizes.add(1000);
/// sizes.add(1023);
/// let classes: Vec<_> = sizes.classes().collect();
/// assert_eq!(classes, [(0, 0, 1), (512, 1023, 2)]);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "Vec<(u8, u64)>", try_from = "Vec<(u8, u64)>")]
pub struct Sizes {
    messages: [u64; CLASSES],
}

impl Default for Sizes {
    fn default() -> Sizes {
        Sizes { messages: [0; CLASSES] }
    }
}

impl Sizes {
    /// Counts a message by its length in bytes.
    ///
    /// Costs one addition.
    #[inline]
    pub fn add(&mut self, bytes: u64) {
        self.messages[(u64::BITS - bytes.leading_zeros()) as usize] += 1;
    }

    /// Adds another rank's counts.
    pub fn merge(&mut self, other: &Sizes) {
        for (mine, others) in self.messages.iter_mut().zip(other.messages) {
            *mine = mine.saturating_add(others);
        }
    }

    /// Iterates over the non-empty classes as (least length, largest length, messages), ascending.
    pub fn classes(&self) -> impl Iterator<Item = (u64, u64, u64)> + '_ {
        self.messages.iter().enumerate().filter(|(_, messages)| **messages > 0).map(|(bits, messages)| match bits {
            0 => (0, 0, *messages),
            bits => (1 << (bits - 1), u64::MAX >> (CLASSES - 1 - bits), *messages),
        })
    }

    /// Returns the total message count.
    pub fn messages(&self) -> u64 {
        self.messages.iter().fold(0, |sum, messages| sum.saturating_add(*messages))
    }
}

impl From<Sizes> for Vec<(u8, u64)> {
    fn from(sizes: Sizes) -> Vec<(u8, u64)> {
        (0..).zip(sizes.messages).filter(|(_, messages)| *messages > 0).collect()
    }
}

impl TryFrom<Vec<(u8, u64)>> for Sizes {
    type Error = String;

    fn try_from(classes: Vec<(u8, u64)>) -> Result<Sizes, String> {
        let mut sizes = Sizes::default();
        for (class, messages) in classes {
            let place = sizes.messages.get_mut(usize::from(class));
            *place.ok_or_else(|| format!("there is no class {class} of sizes"))? = messages;
        }
        Ok(sizes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_is_counted_in_its_class() {
        for bytes in [0, 1, 2, 3, 4, 1023, 1024, u64::from(u32::MAX), u64::MAX] {
            let mut sizes = Sizes::default();
            sizes.add(bytes);
            let classes: Vec<_> = sizes.classes().collect();
            let [(from, to, 1)] = classes[..] else { panic!("{bytes}: {classes:?}") };
            assert!((from..=to).contains(&bytes), "{bytes} is not in {from}-{to}");
        }
    }

    #[test]
    fn an_invalid_class_is_refused() {
        assert_eq!(serde_json::from_str::<Sizes>("[[3,5]]").unwrap().messages(), 5);
        assert!(serde_json::from_str::<Sizes>("[[65,5]]").unwrap_err().to_string().contains("no class 65"));
    }
}
