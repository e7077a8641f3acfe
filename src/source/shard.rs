//! [`Shard`]: one of several parts of all objects, by a hash that every process and every program computes alike.
//!
//! The part of an object follows from its name alone, so those who divide the objects among them need not talk. The
//! in-process hash of a key would not do: it is seeded anew by every process.

use std::fmt;

/// Part `index` of `count` parts of all objects, for a [`Scope`](super::Scope). Each object is in exactly one.
///
/// The part of an object, for whoever computes it elsewhere:
///
/// 1. the text is `namespace/name`, or `name` for an object without a namespace, in UTF-8;
/// 2. `h` is its 64-bit FNV-1a: from `0xcbf29ce484222325`, for each byte `h = (h ^ byte) * 0x100000001b3`;
/// 3. `h` is mixed: `h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9`, `h = (h ^ (h >> 27)) * 0x94d049bb133111eb`,
///    `h = h ^ (h >> 31)`, all modulo 2^64 (step 2 alone would leave the parity of the text in the lowest bit);
/// 4. the part is `h` modulo `count`.
///
/// This will not change. Another `count` puts most objects into other parts, so all who share the work must agree on it
/// at any one time.
///
/// A reflector asks for everything and drops what is not in its part. That saves memory and the work behind the
/// reflector, not the server's work, the transfer, or the decoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shard {
    index: u32,
    count: u32,
}

/// There is no such part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no part {index} of {count}; parts are counted from 0")]
pub struct ShardError {
    /// The part asked for.
    pub index: u32,
    /// Of so many.
    pub count: u32,
}

impl Shard {
    /// Part `index`, counted from 0, of `count` parts.
    ///
    /// # Errors
    /// [`ShardError`] unless `index` is below `count`.
    pub const fn new(index: u32, count: u32) -> Result<Self, ShardError> {
        if index < count { Ok(Self { index, count }) } else { Err(ShardError { index, count }) }
    }

    /// Which part, counted from 0.
    pub const fn index(self) -> u32 {
        self.index
    }

    /// Of how many.
    pub const fn count(self) -> u32 {
        self.count
    }

    /// Whether the object of this name is in this part. `namespace` is empty when there is none.
    pub fn owns(self, namespace: &str, name: &str) -> bool {
        hash(namespace, name) % u64::from(self.count) == u64::from(self.index)
    }
}

/// `index/count`, counted from 0.
impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index, self.count)
    }
}

fn hash(namespace: &str, name: &str) -> u64 {
    let slash = if namespace.is_empty() { "" } else { "/" };
    let text = [namespace, slash, name].into_iter().flat_map(str::bytes);
    let h = text.fold(0xcbf2_9ce4_8422_2325_u64, |h, byte| (h ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    let h = (h ^ (h >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let h = (h ^ (h >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    h ^ (h >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computed by another program from the four steps of the documentation. They must hold for ever: a process of
    /// another version would otherwise own other objects.
    const VECTORS: [(&str, &str, u64); 6] = [
        ("", "a", 0x02c0_bdbf_4814_20f8),
        ("default", "kubernetes", 0xdb3f_f759_3852_9a48),
        ("kube-system", "coredns-5d78c9869d-abcde", 0x5db0_380b_356f_a6ea),
        ("a", "b/c", 0x0d21_ce1a_9275_17ff),
        ("", "日本語", 0x77e3_27b1_b675_5706),
        ("", "", 0xf52a_15e9_a9b5_e89b),
    ];

    #[test]
    fn the_hash_of_a_name_is_the_same_everywhere_and_for_ever() {
        for (namespace, name, expected) in VECTORS {
            assert_eq!(hash(namespace, name), expected, "{namespace}/{name}: {:#x}", hash(namespace, name));
        }
        assert_eq!(hash("a", "b"), hash("", "a/b"), "the text is what counts");
    }

    #[test]
    fn every_object_is_in_exactly_one_part_and_the_parts_are_about_equal() {
        for count in [1, 2, 3, 4, 8, 10, 16] {
            let mut sizes = vec![0_u32; count as usize];
            for n in 0..8000 {
                let (namespace, name) = (format!("ns-{}", n % 7), format!("pod-{n}"));
                let owners: Vec<u32> = (0..count).filter(|i| Shard::new(*i, count).unwrap().owns(&namespace, &name)).collect();
                assert_eq!(owners.len(), 1, "{name} of {count}");
                sizes[owners[0] as usize] += 1;
            }
            let even = 8000 / count;
            assert!(sizes.iter().all(|s| s.abs_diff(even) <= even / 5), "{count}: {sizes:?}");
        }
    }

    #[test]
    fn there_are_no_parts_beyond_the_count() {
        assert_eq!(Shard::new(3, 3), Err(ShardError { index: 3, count: 3 }));
        assert_eq!(Shard::new(0, 0).unwrap_err().to_string(), "there is no part 0 of 0; parts are counted from 0");
        let last = Shard::new(2, 3).unwrap();
        assert_eq!((last.index(), last.count(), last.to_string()), (2, 3, "2/3".to_owned()));
    }
}
