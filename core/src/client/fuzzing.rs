//! Doors for the fuzzers to what networks answer the client.

use std::net::{IpAddr, Ipv4Addr};

use super::captive::Outcome;
use super::nat64;

/// What came back of a request for a login page, and what it is taken for, in words.
pub fn captive(answer: Vec<u8>, relay: IpAddr) -> String {
    let outcome = Outcome::of(&Ok(answer));
    outcome.finding(relay, Some(&Outcome::Reached), None).to_string()
}

/// The addresses that stand for `address` behind the prefixes that a network's resolver tells of.
pub fn nat64(answers: &[IpAddr], address: Ipv4Addr) -> Vec<IpAddr> {
    let prefixes = nat64::prefixes(answers);
    prefixes.iter().filter_map(|prefix| prefix.embed(address)).map(IpAddr::V6).collect()
}
