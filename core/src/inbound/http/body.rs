//! Where a message's body ends (RFC 9112 sections 6 and 7.1), without I/O.
//!
//! Bodies are not changed on their way: [`Body::measure`] says how many of the bytes that have arrived belong to the body,
//! and they go on as they are, chunk sizes and trailers included. Only a client of HTTP/1.0 gets the payload alone.
//! Chunks are read strictly: whoever reads them after us must find the same end.

/// A body on its way, and how much of it is still to come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Body {
    /// Bytes still to come; 0 when there is nothing, or nothing more.
    Length(u64),
    Chunked(Chunk),
    /// Everything until the connection ends.
    UntilClose,
}

/// Where a chunked body stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Chunk {
    /// Before or in the digits of a size.
    Size {
        digits: u8,
        bytes: u64,
    },
    /// In what may follow a size.
    Extension(u64),
    /// Behind the CR of a size.
    SizeEnd(u64),
    /// In the data, with the bytes still to come.
    Data(u64),
    /// Behind the data.
    DataEnd,
    /// Behind the CR that follows the data.
    DataEndLf,
    /// At the beginning of a line of the trailer section.
    Trailer,
    /// In such a line.
    TrailerLine,
    /// Behind its CR.
    TrailerLineEnd,
    /// Behind the CR of the last, empty line.
    End,
    Done,
}

/// A chunked body that is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Malformed;

/// Hexadecimal digits of a size at most: 15 make no number that could overflow.
const MAX_DIGITS: u8 = 15;

impl Body {
    pub(super) const NONE: Body = Body::Length(0);

    pub(super) fn chunked() -> Self {
        Body::Chunked(Chunk::Size { digits: 0, bytes: 0 })
    }

    /// Whether everything has been seen. A body that lasts until the connection ends never has.
    pub(super) fn is_done(&self) -> bool {
        matches!(self, Body::Length(0) | Body::Chunked(Chunk::Done))
    }

    /// How many of these bytes, from the first on, belong to the body. The payload alone of a chunked one is added to
    /// `payload`.
    pub(super) fn measure(&mut self, bytes: &[u8], mut payload: Option<&mut Vec<u8>>) -> Result<usize, Malformed> {
        match self {
            Body::UntilClose => Ok(bytes.len()),
            Body::Length(left) => {
                let length = at_most(bytes, *left);
                *left -= length as u64;
                Ok(length)
            }
            Body::Chunked(chunk) => {
                let mut at = 0;
                while at < bytes.len() && *chunk != Chunk::Done {
                    if let Chunk::Data(left) = chunk {
                        let length = at_most(&bytes[at..], *left);
                        if let Some(payload) = &mut payload {
                            payload.extend_from_slice(&bytes[at..at + length]);
                        }
                        at += length;
                        *left -= length as u64;
                        if *left == 0 {
                            *chunk = Chunk::DataEnd;
                        }
                    } else {
                        *chunk = chunk.after(bytes[at]).ok_or(Malformed)?;
                        at += 1;
                    }
                }
                Ok(at)
            }
        }
    }
}

impl Chunk {
    /// Where a body stands after one more byte that is no data.
    fn after(self, byte: u8) -> Option<Chunk> {
        let text = byte == b'\t' || byte >= b' ' && byte != 0x7f;
        match (self, byte) {
            (Chunk::Size { digits, bytes }, _) if byte.is_ascii_hexdigit() => {
                let digit = char::from(byte).to_digit(16)?;
                (digits < MAX_DIGITS)
                    .then_some(Chunk::Size { digits: digits + 1, bytes: bytes * 16 + u64::from(digit) })
            }
            (Chunk::Size { digits: 1.., bytes }, b'\r') => Some(Chunk::SizeEnd(bytes)),
            (Chunk::Size { digits: 1.., bytes }, b';' | b' ' | b'\t') => Some(Chunk::Extension(bytes)),
            (Chunk::Extension(bytes), b'\r') => Some(Chunk::SizeEnd(bytes)),
            (Chunk::Extension(_), _) if text => Some(self),
            (Chunk::SizeEnd(0), b'\n') => Some(Chunk::Trailer),
            (Chunk::SizeEnd(bytes), b'\n') => Some(Chunk::Data(bytes)),
            (Chunk::DataEnd, b'\r') => Some(Chunk::DataEndLf),
            (Chunk::DataEndLf, b'\n') => Some(Chunk::Size { digits: 0, bytes: 0 }),
            (Chunk::Trailer, b'\r') => Some(Chunk::End),
            (Chunk::TrailerLine, b'\r') => Some(Chunk::TrailerLineEnd),
            (Chunk::Trailer | Chunk::TrailerLine, _) if text => Some(Chunk::TrailerLine),
            (Chunk::TrailerLineEnd, b'\n') => Some(Chunk::Trailer),
            (Chunk::End, b'\n') => Some(Chunk::Done),
            _ => None,
        }
    }
}

fn at_most(bytes: &[u8], limit: u64) -> usize {
    usize::try_from(limit).map_or(bytes.len(), |limit| bytes.len().min(limit))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Feeds `input` in pieces; answers with the bytes that belonged to the body, its payload, and whether it is whole.
    fn run(mut body: Body, input: &[u8], piece: usize) -> Result<(usize, Vec<u8>, bool), Malformed> {
        let (mut total, mut payload) = (0, Vec::new());
        for part in input.chunks(piece) {
            let length = body.measure(part, Some(&mut payload))?;
            total += length;
            if length < part.len() {
                break;
            }
        }
        Ok((total, payload, body.is_done()))
    }

    #[test]
    fn a_body_of_known_length_takes_no_byte_more() {
        assert_eq!(run(Body::Length(5), b"hello, next", 3).map(|(total, _, done)| (total, done)), Ok((5, true)));
        assert_eq!(run(Body::Length(5), b"hell", 3).map(|(total, _, done)| (total, done)), Ok((4, false)));
        assert_eq!(run(Body::UntilClose, b"hello", 3).map(|(total, _, done)| (total, done)), Ok((5, false)));
        assert!(Body::NONE.is_done());
    }

    #[test]
    fn a_chunked_body_ends_behind_its_trailers_wherever_it_is_cut() {
        let body = b"5\r\nhello\r\n00A ; name=\"value\"\r\n, world...\r\n0\r\nChecksum: 1\r\nB: 2\r\n\r\n";
        let input = [&body[..], b"GET / HTTP/1.1\r\n"].concat();
        for piece in 1..input.len() {
            assert_eq!(
                run(Body::chunked(), &input, piece),
                Ok((body.len(), b"hello, world...".to_vec(), true)),
                "{piece}"
            );
        }
    }

    #[test]
    fn chunks_that_someone_could_read_otherwise_are_refused() {
        for input in [
            &b"\r\n"[..],
            b"5\nhello\r\n",
            b"5\r\nhello\n0\r\n\r\n",
            b"5\r\nhello!\r\n",
            b"g\r\n",
            b"-1\r\n",
            b"0x5\r\n",
            b" 5\r\nhello\r\n",
            b"5;a\nb\r\nhello\r\n",
            b"5\rhello\r\n",
            b"1000000000000000\r\n",
            b"0\r\nA: b\nC: d\r\n\r\n",
            b"0\r\n\n",
            b"0\r\nA: \0\r\n\r\n",
        ] {
            assert_eq!(run(Body::chunked(), input, 99), Err(Malformed), "{:?}", String::from_utf8_lossy(input));
        }
    }

    proptest! {
        #[test]
        fn any_payload_in_any_chunks_comes_out_whole(
            payload in prop::collection::vec(any::<u8>(), 0..500),
            size in 1usize..60,
            piece in 1usize..60,
        ) {
            let mut input = Vec::new();
            for chunk in payload.chunks(size) {
                input.extend_from_slice(format!("{:X}\r\n", chunk.len()).as_bytes());
                input.extend_from_slice(chunk);
                input.extend_from_slice(b"\r\n");
            }
            input.extend_from_slice(b"0\r\n\r\n");
            let length = input.len();
            input.extend_from_slice(b"rest");
            prop_assert_eq!(run(Body::chunked(), &input, piece), Ok((length, payload, true)));
        }

        #[test]
        fn any_bytes_end_the_same_however_they_are_cut(
            input in prop::collection::vec(prop_oneof![Just(b'0'), Just(b'5'), Just(b'\r'), Just(b'\n'), any::<u8>()], 0..80),
            piece in 1usize..20,
        ) {
            let whole = run(Body::chunked(), &input, usize::MAX);
            let cut = run(Body::chunked(), &input, piece);
            prop_assert_eq!(cut, whole);
        }
    }
}
