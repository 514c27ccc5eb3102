//! Reads and writes the fields of messages; every failure names its field.

/// Why bytes are not a message of the protocol.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The message's stated length ends inside a field.
    #[error("{field}: the message ends inside this field")]
    Short {
        /// The field that is cut off.
        field: &'static str,
    },
    /// A field holds a number outside its range.
    #[error("{field} is {found}; allowed: {allowed}")]
    Value {
        /// The field.
        field: &'static str,
        /// The number found.
        found: u64,
        /// What the protocol allows, in words.
        allowed: &'static str,
    },
    /// A field that must hold text holds something else.
    #[error("{field} is not {allowed}")]
    Text {
        /// The field.
        field: &'static str,
        /// What the protocol allows, in words.
        allowed: &'static str,
    },
}

/// Takes fields off the front of a message's payload.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(payload: &'a [u8]) -> Self {
        Reader { rest: payload }
    }

    pub(super) fn take(&mut self, length: usize, field: &'static str) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(DecodeError::Short { field })?;
        self.rest = rest;
        Ok(taken)
    }

    pub(super) fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], DecodeError> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(DecodeError::Short { field })?;
        self.rest = rest;
        Ok(*taken)
    }

    pub(super) fn u8(&mut self, field: &'static str) -> Result<u8, DecodeError> {
        Ok(u8::from_be_bytes(self.array(field)?))
    }

    pub(super) fn u16(&mut self, field: &'static str) -> Result<u16, DecodeError> {
        Ok(u16::from_be_bytes(self.array(field)?))
    }

    pub(super) fn u32(&mut self, field: &'static str) -> Result<u32, DecodeError> {
        Ok(u32::from_be_bytes(self.array(field)?))
    }

    pub(super) fn u64(&mut self, field: &'static str) -> Result<u64, DecodeError> {
        Ok(u64::from_be_bytes(self.array(field)?))
    }

    /// A text with its length (two bytes) before it: UTF-8 of at most `limit` bytes without control characters, as it
    /// may end up on a terminal or in a log.
    pub(super) fn text(&mut self, limit: usize, field: &'static str) -> Result<&'a str, DecodeError> {
        let length = self.u16(field)?;
        if usize::from(length) > limit {
            return Err(DecodeError::Value {
                field,
                found: u64::from(length),
                allowed: "a length within the field's limit",
            });
        }
        let bytes = self.take(usize::from(length), field)?;
        let allowed = "UTF-8 text without control characters";
        let text = std::str::from_utf8(bytes).map_err(|_| DecodeError::Text { field, allowed })?;
        if text.chars().any(char::is_control) {
            return Err(DecodeError::Text { field, allowed });
        }
        Ok(text)
    }
}

/// Appends a text with its length before it, made to fit: cut at `limit` bytes between characters, and control characters
/// become spaces.
pub(super) fn put_text(out: &mut Vec<u8>, text: &str, limit: usize) {
    let text = &text[..text.floor_char_boundary(limit)];
    let at = out.len();
    out.extend_from_slice(&[0, 0]);
    for character in text.chars() {
        let character = if character.is_control() { ' ' } else { character };
        out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
    }
    let length = u16::try_from(out.len() - at - 2).expect("limits of texts are far below 65,536 bytes");
    out[at..at + 2].copy_from_slice(&length.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_is_too_long_is_cut_between_characters() {
        let mut out = Vec::new();
        put_text(&mut out, "aé\u{7}é", 3);
        assert_eq!(Reader::new(&out).text(3, "text"), Ok("aé"));
        out.clear();
        put_text(&mut out, "é\u{85}é", 5);
        // U+0085 takes two bytes and becomes a space of one.
        assert_eq!(Reader::new(&out).text(5, "text"), Ok("é "));
    }

    #[test]
    fn a_field_that_is_cut_off_is_named() {
        assert_eq!(Reader::new(&[1]).u16("port"), Err(DecodeError::Short { field: "port" }));
        let control = Reader::new(&[0, 1, 7]).text(8, "text");
        assert!(matches!(control, Err(DecodeError::Text { field: "text", .. })));
    }
}
