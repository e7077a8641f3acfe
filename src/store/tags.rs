//! Which tags of a page are the wanted one.
//!
//! A tag is 16 bits of a hash. Eight are compared at once where the processor can, as every x86-64, else four at a time by
//! arithmetic; both find the same.

use super::node::Tags;
#[cfg(target_arch = "x86_64")]
use super::node::same;

/// So many tags are looked at at once: all that most pages have.
const BLOCK: usize = 32;

/// The places at which a tag is the wanted one, lowest first.
pub(super) struct Places<'t> {
    wanted: u16,
    /// Two bits for each tag of the block that was looked at last; the lower one is set where it is the wanted one.
    found: u64,
    /// Tags before that block.
    before: usize,
    rest: &'t [Tags],
    /// Tags in that block and after it.
    left: usize,
}

impl<'t> Places<'t> {
    /// Among the first so many of these.
    #[inline]
    pub(super) fn of(wanted: u16, tags: &'t [Tags], end: usize) -> Self {
        let (first, rest) = tags.split_at(tags.len().min(BLOCK / 8));
        let within = if end < BLOCK { (1 << (2 * end)) - 1 } else { u64::MAX };
        Self { wanted, found: block(first, wanted) & within, before: 0, rest, left: end }
    }

    /// The place, when it is the only one and looking at one block was enough to tell.
    #[inline]
    pub(super) fn only(self) -> Option<usize> {
        let alone = self.rest.is_empty() && self.found.is_power_of_two();
        alone.then(|| self.found.trailing_zeros() as usize / 2)
    }

    #[cold]
    fn go_on(&mut self) {
        let before = self.before + BLOCK;
        *self = Self { before, ..Self::of(self.wanted, self.rest, self.left - BLOCK) };
    }
}

impl Iterator for Places<'_> {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        while self.found == 0 {
            if self.rest.is_empty() {
                return None;
            }
            self.go_on();
        }
        let place = self.before + self.found.trailing_zeros() as usize / 2;
        self.found &= self.found - 1;
        Some(place)
    }
}

#[inline]
fn block(tags: &[Tags], wanted: u16) -> u64 {
    let (mut found, mut shift) = (0, 0);
    for eight in tags {
        found |= same(*eight, wanted) << shift;
        shift += 16;
    }
    found
}

#[cfg(not(target_arch = "x86_64"))]
#[inline]
fn same([low, high]: Tags, wanted: u16) -> u64 {
    by_arithmetic(low, wanted) | by_arithmetic(high, wanted) << 8
}

#[cfg(any(test, not(target_arch = "x86_64")))]
fn by_arithmetic(four: u64, wanted: u16) -> u64 {
    const LOW: u64 = 0x0001_0001_0001_0001;
    const REST: u64 = 0x7fff * LOW;
    let differs = four ^ (u64::from(wanted) * LOW);
    // The highest bit of a tag is clear only where no bit of it differs.
    let same = !(((differs & REST) + REST) | differs | REST);
    same >> 15 & 1 | same >> 29 & 4 | same >> 43 & 16 | same >> 57 & 64
}

#[cfg(all(test, not(informer_loom), not(informer_shuttle)))]
mod tests {
    use super::{Places, Tags, by_arithmetic, same};
    use proptest::{collection::vec, prelude::*};

    proptest! {
        #[test]
        fn exactly_the_places_of_the_wanted_tag_are_found(tags in vec(0..6u16, 0..90), high in any::<bool>()) {
            let of = |tag: u16| if high { tag ^ 0x8000 | 0x7ff0 } else { tag };
            let word = |four: &[u16]| four.iter().rev().fold(0, |word, tag| word << 16 | u64::from(of(*tag)));
            let two = |eight: &[u16]| {
                let (low, high) = eight.split_at(eight.len().min(4));
                [word(low), word(high)]
            };
            let all: Vec<Tags> = tags.chunks(8).map(two).collect();
            for wanted in 0..6 {
                let expected: Vec<_> = (0..tags.len()).filter(|i| tags[*i] == wanted).collect();
                let places = || Places::of(of(wanted), &all, tags.len());
                prop_assert_eq!(places().collect::<Vec<_>>(), &*expected);
                if let Some(only) = places().only() {
                    prop_assert_eq!(&*expected, [only]);
                } else {
                    prop_assert!(expected.len() != 1 || tags.len() > 32);
                }
                for eight in &all {
                    let [low, high] = eight.map(|four| by_arithmetic(four, of(wanted)));
                    prop_assert_eq!(same(*eight, of(wanted)), low | high << 8);
                }
            }
        }
    }
}
