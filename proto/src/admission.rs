//! Relay: which newcomers get a handshake, when more come than it may or can serve.
//!
//! A handshake costs the relay a signature and a session's memory, and its first datagram may bear any source address. So
//! each is charged to two budgets, which fill at a steady rate: that of the network it comes from, and that of all together.
//! A newcomer whose address is not proved has only the upper half of the common budget, and beyond it, or while many
//! handshakes are under way, is asked to prove its address first (QUIC's Retry, which costs one packet and no memory). So a
//! flood from made-up addresses leaves the other half to those who can answer, and one from a single network uses up that
//! network's budget. What is beyond a budget is dropped without a word: a client asks again by itself.
//!
//! Networks are /24 for IPv4 and /56 for IPv6: what one subscriber or host usually has. Times are passed in.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

use crate::bucket::Bucket;

/// Handshakes under way above which every newcomer must prove its address (RFC 9000, section 8.1.2).
pub const PROVE_ABOVE: usize = 64;

/// A budget that was not used holds what comes in over so long: clients come in bursts, after an outage for instance.
const BURST: Duration = Duration::from_secs(5);

/// How often full budgets of networks are forgotten.
const SWEEP: Duration = Duration::from_secs(10);

/// How many handshakes a relay begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HandshakeRates {
    /// From everywhere together, each second; 1 or more.
    pub per_second: u32,
    /// From one network, /24 or /56, each second; 1 or more.
    pub per_second_and_network: u32,
}

impl Default for HandshakeRates {
    fn default() -> Self {
        Self { per_second: 200, per_second_and_network: 20 }
    }
}

/// What becomes of a newcomer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Its handshake goes on.
    Accept,
    /// It must prove its address first.
    Prove,
    /// It gets no answer.
    Drop,
}

/// What a budget of handshakes holds.
fn most(rate: f64) -> f64 {
    rate * BURST.as_secs_f64()
}

/// The doorkeeper of one relay.
#[derive(Debug)]
pub struct Admission {
    rates: HandshakeRates,
    all: Bucket,
    /// Networks whose budget is not full. What all together may begin bounds them.
    networks: HashMap<IpAddr, Bucket>,
    swept: Instant,
}

impl Admission {
    /// With full budgets.
    pub fn new(rates: HandshakeRates, now: Instant) -> Self {
        Self { rates, all: Bucket::full(most(rates.per_second.into()), now), networks: HashMap::new(), swept: now }
    }

    /// Judges a newcomer at `from`, whose address is `proved` or not, while so many handshakes are `under_way`.
    pub fn judge(&mut self, from: IpAddr, proved: bool, under_way: usize, now: Instant) -> Verdict {
        self.sweep(now);
        let (rate, network_rate) = (f64::from(self.rates.per_second), f64::from(self.rates.per_second_and_network));
        self.all.fill(rate, most(rate), now);
        let network = network(from);
        let mut own = self.networks.get(&network).copied().unwrap_or_else(|| Bucket::full(most(network_rate), now));
        own.fill(network_rate, most(network_rate), now);
        let kept = if proved { 0.0 } else { most(rate) / 2.0 };
        let affordable = self.all.tokens >= kept + 1.0 && own.tokens >= 1.0;
        if affordable && (proved || under_way <= PROVE_ABOVE) {
            self.all.tokens -= 1.0;
            own.tokens -= 1.0;
            self.networks.insert(network, own);
            return Verdict::Accept;
        }
        if proved { Verdict::Drop } else { Verdict::Prove }
    }

    /// Forgets networks whose budget is full again.
    fn sweep(&mut self, now: Instant) {
        if now.saturating_duration_since(self.swept) < SWEEP {
            return;
        }
        self.swept = now;
        let rate = f64::from(self.rates.per_second_and_network);
        self.networks.retain(|_, bucket| {
            bucket.fill(rate, most(rate), now);
            bucket.tokens < most(rate)
        });
    }
}

/// The network of an address: its /24 or /56.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::from((u32::from(address) & !0xff).to_be_bytes()),
        IpAddr::V6(address) => Ipv6Addr::from(u128::from(address) & !((1 << 72) - 1)).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATES: HandshakeRates = HandshakeRates { per_second: 100, per_second_and_network: 10 };

    fn admission() -> (Admission, Instant) {
        let now = crate::testing::start();
        (Admission::new(RATES, now), now)
    }

    fn address(network: u16, host: u8) -> IpAddr {
        let [high, low] = network.to_be_bytes();
        IpAddr::from([20, high, low, host])
    }

    #[test]
    fn a_flood_from_made_up_addresses_leaves_half_of_all_to_those_who_prove_theirs() {
        let (mut admission, now) = admission();
        let mut accepted = 0;
        for flood in 0..20_000 {
            let verdict = admission.judge(address(flood, 1), false, 0, now);
            accepted += usize::from(verdict == Verdict::Accept);
            assert_ne!(verdict, Verdict::Drop, "whoever is not proved may try to prove itself");
        }
        assert_eq!(accepted, 250);
        for good in 0..250 {
            assert_eq!(admission.judge(address(30_000 + good, 1), true, 0, now), Verdict::Accept, "{good}");
        }
        assert_eq!(admission.judge(address(40_000, 1), true, 0, now), Verdict::Drop);
    }

    #[test]
    fn one_network_uses_up_its_own_budget_and_nobody_elses() {
        let (mut admission, now) = admission();
        let flood = (0..200u8).map(|host| admission.judge(address(1, host), true, 0, now));
        assert_eq!(flood.filter(|verdict| *verdict == Verdict::Accept).count(), 50);
        assert_eq!(admission.judge(address(1, 201), false, 0, now), Verdict::Prove);
        assert_eq!(admission.judge(address(2, 1), false, 0, now), Verdict::Accept);
        let later = now + Duration::from_millis(950);
        let again = (0..200u8).map(|host| admission.judge(address(1, host), true, 0, later));
        assert_eq!(again.filter(|verdict| *verdict == Verdict::Accept).count(), 9, "ten a second");
    }

    #[test]
    fn while_many_handshakes_are_under_way_everyone_proves_its_address() {
        let (mut admission, now) = admission();
        assert_eq!(admission.judge(address(1, 1), false, PROVE_ABOVE, now), Verdict::Accept);
        assert_eq!(admission.judge(address(2, 1), false, PROVE_ABOVE + 1, now), Verdict::Prove);
        assert_eq!(admission.judge(address(2, 1), true, PROVE_ABOVE + 1, now), Verdict::Accept);
    }

    #[test]
    fn networks_are_remembered_for_as_long_as_they_owe_something() {
        let (mut admission, mut now) = admission();
        for step in 0..60_000u16 {
            now += Duration::from_millis(1);
            admission.judge(address(step, 1), true, 0, now);
        }
        // All that began in the last ten seconds, and the burst, at most.
        assert!(admission.networks.len() <= 1_600, "{}", admission.networks.len());
        admission.judge(address(1, 1), true, 0, now + Duration::from_secs(60));
        assert_eq!(admission.networks.len(), 1);
    }

    #[test]
    fn a_network_is_a_slash_24_or_56_in_whatever_form_it_comes() {
        let same = |a: &str, b: &str| network(a.parse().unwrap()) == network(b.parse().unwrap());
        assert!(same("192.0.2.1", "192.0.2.254") && !same("192.0.2.1", "192.0.3.1"));
        assert!(same("192.0.2.1", "::ffff:192.0.2.7"));
        assert!(same("2001:db8:1:200::1", "2001:db8:1:2ff:ffff::1") && !same("2001:db8:1:200::1", "2001:db8:1:300::1"));
    }
}
