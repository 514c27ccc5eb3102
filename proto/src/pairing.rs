//! The pairing link: everything a client needs to reach and trust one relay, as one line of text.
