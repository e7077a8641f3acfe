//! Which tags of a page are the wanted one.
//!
//! A tag is 16 bits of a hash. As many as most pages have are compared at once, without a branch: how many of them there
//! are differs from page to page, and a processor that guesses wrong waits longer than all comparisons take. Where it can
//! the processor does it, as every x86-64, else it is arithmetic; both find the same.

use super::node::Tags;
#[cfg(target_arch = "x86_64")]
use super::node::same;

/// So many tags are compared at once.
pub(super) const AT_ONCE: usize = 32;

/// The places at which a tag is the wanted one, lowest first.
pub(super) struct Places<'t> {
    wanted: u16,
    /// One bit for each tag of those that were compared last, set where it is the wanted one.
    found: u32,
    /// Tags before those.
    before: usize,
    rest: &'t [Tags],
    /// Tags among those and after them.
    left: usize,
}

impl<'t> Places<'t> {
    /// Among the first so many of these.
    #[inline]
    pub(super) fn of(wanted: u16, tags: &'t [Tags], end: usize) -> Self {
        let (found, rest) = match tags.split_first() {
            Some((first, rest)) => (same(first, wanted) & lowest(end), rest),
            None => (0, tags),
        };
        Self { wanted, found, before: 0, rest, left: end }
    }

    /// The place, when it is the only one and looking once was enough to tell.
    #[inline]
    pub(super) fn only(self) -> Option<usize> {
        let alone = self.rest.is_empty() && self.found.is_power_of_two();
        alone.then(|| self.found.trailing_zeros() as usize)
    }

    #[cold]
    fn go_on(&mut self) {
        let before = self.before + AT_ONCE;
        *self = Self { before, ..Self::of(self.wanted, self.rest, self.left - AT_ONCE) };
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
        let place = self.before + self.found.trailing_zeros() as usize;
        self.found &= self.found - 1;
        Some(place)
    }
}

/// So many bits, or all.
#[inline]
fn lowest(bits: usize) -> u32 {
    ((1_u64 << bits.min(AT_ONCE)) - 1) as u32
}

#[cfg(not(target_arch = "x86_64"))]
#[inline]
fn same(tags: &Tags, wanted: u16) -> u32 {
    by_arithmetic(tags, wanted)
}

#[cfg(any(test, not(target_arch = "x86_64")))]
fn by_arithmetic(tags: &Tags, wanted: u16) -> u32 {
    const LOW: u64 = 0x0001_0001_0001_0001;
    const REST: u64 = 0x7fff * LOW;
    let mut found = 0;
    for (i, four) in tags.iter().enumerate() {
        let differs = four ^ (u64::from(wanted) * LOW);
        // The highest bit of a tag is clear only where no bit of it differs.
        let same = !(((differs & REST) + REST) | differs | REST);
        let bits = same >> 15 & 1 | same >> 30 & 2 | same >> 45 & 4 | same >> 60 & 8;
        found |= (bits as u32) << (4 * i);
    }
    found
}

#[cfg(all(test, not(informer_loom), not(informer_shuttle)))]
mod tests {
    use super::{AT_ONCE, Places, Tags, by_arithmetic, same};
    use proptest::{collection::vec, prelude::*};

    proptest! {
        #[test]
        fn exactly_the_places_of_the_wanted_tag_are_found(tags in vec(0..6u16, 0..90), high in any::<bool>(), behind in 0..6u16) {
            let of = |tag: u16| if high { tag ^ 0x8000 | 0x7ff0 } else { tag };
            let word = |four: &[u16]| {
                let four = four.iter().chain([&behind; 4]).take(4);
                four.collect::<Vec<_>>().into_iter().rev().fold(0, |word, tag| word << 16 | u64::from(of(*tag)))
            };
            let block = |tags: &[u16]| -> Tags { std::array::from_fn(|i| word(tags.get(4 * i..).map_or(&[], |t| &t[..t.len().min(4)]))) };
            let all: Vec<Tags> = tags.chunks(AT_ONCE).map(block).collect();
            for wanted in 0..6 {
                let expected: Vec<_> = (0..tags.len()).filter(|i| tags[*i] == wanted).collect();
                let places = || Places::of(of(wanted), &all, tags.len());
                prop_assert_eq!(places().collect::<Vec<_>>(), &*expected);
                if let Some(only) = places().only() {
                    prop_assert_eq!(&*expected, [only]);
                } else {
                    prop_assert!(expected.len() != 1 || tags.len() > AT_ONCE);
                }
                for tags in &all {
                    prop_assert_eq!(same(tags, of(wanted)), by_arithmetic(tags, of(wanted)));
                }
            }
        }
    }
}
