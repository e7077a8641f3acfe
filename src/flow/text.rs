//! [`Text`]: a string that is either borrowed or short and rebuilt on the spot.

use std::{fmt, ops::Deref};

/// A version or uid as text.
///
/// Objects keep decimal versions and UUIDs in binary, so their text is rebuilt on demand, without allocating.
/// Dereferences to `str`.
#[derive(Clone, Copy)]
pub struct Text<'a>(Repr<'a>);

#[derive(Clone, Copy)]
enum Repr<'a> {
    Borrowed(&'a str),
    Inline { len: u8, bytes: [u8; Text::INLINE] },
}

impl<'a> Text<'a> {
    const INLINE: usize = 36;

    pub(crate) const fn borrowed(s: &'a str) -> Self {
        Self(Repr::Borrowed(s))
    }

    pub(crate) fn decimal(mut n: u64) -> Self {
        let mut digits = [0u8; 20];
        let mut at = digits.len();
        loop {
            at -= 1;
            digits[at] = b'0' + (n % 10) as u8;
            n /= 10;
            if n == 0 {
                break;
            }
        }
        let mut bytes = [0; Self::INLINE];
        let len = digits.len() - at;
        bytes[..len].copy_from_slice(&digits[at..]);
        Self(Repr::Inline { len: len as u8, bytes })
    }

    pub(crate) fn uuid(raw: [u8; 16]) -> Self {
        const HEX: &[u8; 16] = b"0123456789abcdef";
        let mut bytes = [0; Self::INLINE];
        let mut at = 0;
        for (i, b) in raw.into_iter().enumerate() {
            if matches!(i, 4 | 6 | 8 | 10) {
                bytes[at] = b'-';
                at += 1;
            }
            bytes[at] = HEX[usize::from(b >> 4)];
            bytes[at + 1] = HEX[usize::from(b & 15)];
            at += 2;
        }
        Self(Repr::Inline { len: at as u8, bytes })
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        match &self.0 {
            Repr::Borrowed(s) => s,
            Repr::Inline { len, bytes } => std::str::from_utf8(&bytes[..usize::from(*len)]).unwrap_or_default(),
        }
    }
}

/// The number, when `s` is its canonical decimal text (no sign, no leading zero) and it fits.
pub(crate) fn parse_decimal(s: &str) -> Option<u64> {
    let canonical = s.bytes().all(|b| b.is_ascii_digit()) && (s == "0" || !s.starts_with('0'));
    if canonical { s.parse().ok() } else { None }
}

/// The bytes, when `s` is a UUID in its canonical text (lower case, hyphens at 8, 13, 18 and 23).
pub(crate) fn parse_uuid(s: &str) -> Option<[u8; 16]> {
    let text: &[u8; 36] = s.as_bytes().try_into().ok()?;
    let digit = |b: u8| match b {
        b'0'..=b'9' => Some(b - b'0'),
        b'a'..=b'f' => Some(b - b'a' + 10),
        _ => None,
    };
    let mut raw = [0; 16];
    let mut at = 0;
    for (i, out) in raw.iter_mut().enumerate() {
        if matches!(i, 4 | 6 | 8 | 10) {
            if text[at] != b'-' {
                return None;
            }
            at += 1;
        }
        *out = digit(text[at])? << 4 | digit(text[at + 1])?;
        at += 2;
    }
    Some(raw)
}

impl Deref for Text<'_> {
    type Target = str;
    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl AsRef<str> for Text<'_> {
    fn as_ref(&self) -> &str {
        self
    }
}

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self)
    }
}

impl fmt::Debug for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl PartialEq for Text<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for Text<'_> {}

impl PartialEq<str> for Text<'_> {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}

impl PartialEq<&str> for Text<'_> {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}
