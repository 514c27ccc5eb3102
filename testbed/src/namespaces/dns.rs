//! The name server of a network: knows the bed's names, and plays DNS64 or a captive network's server on demand.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use hickory_proto::op::{Message, OpCode, ResponseCode};
use hickory_proto::rr::rdata::{A, AAAA};
use hickory_proto::rr::{RData, Record, RecordType};

use super::nat64::synthesized;

/// How long an answer may be kept, in seconds: changes of names must be seen.
const TTL: u32 = 1;

/// Addresses by name; names are in lower case and have no dot at the end.
pub(super) type Names = BTreeMap<String, Vec<IpAddr>>;

/// What kind of server answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Server {
    /// Tells what it knows.
    Plain,
    /// Makes IPv6 addresses for names that have IPv4 ones alone (RFC 6147).
    Dns64,
    /// Says of every name that it is the login page.
    Captive(Ipv4Addr),
}

/// The answer to a query; `None` for what is no query.
pub(super) fn answer(query: &[u8], names: &Names, server: Server) -> Option<Vec<u8>> {
    let asked = Message::from_vec(query).ok()?;
    let question = asked.queries.first()?.clone();
    let name = question.name().to_ascii().trim_end_matches('.').to_ascii_lowercase();
    let known = match server {
        Server::Captive(portal) => Some(vec![portal.into()]),
        // How a host learns that there is DNS64 (RFC 7050).
        Server::Dns64 if name == "ipv4only.arpa" => Some(vec![Ipv4Addr::new(192, 0, 0, 170).into()]),
        _ => names.get(&name).cloned(),
    };
    let mut message = Message::response(asked.metadata.id, OpCode::Query);
    message.metadata.recursion_desired = asked.metadata.recursion_desired;
    message.metadata.recursion_available = true;
    message.add_query(question.clone());
    let Some(known) = known else {
        message.metadata.response_code = ResponseCode::NXDomain;
        return message.to_vec().ok();
    };
    let mut record = |data: RData| {
        message.add_answer(Record::from_rdata(question.name().clone(), TTL, data));
    };
    let v6 = known.iter().filter(|address| address.is_ipv6()).count();
    for address in known {
        match (question.query_type(), address) {
            (RecordType::A, IpAddr::V4(address)) => record(RData::A(A(address))),
            (RecordType::AAAA, IpAddr::V6(address)) => record(RData::AAAA(AAAA(address))),
            (RecordType::AAAA, IpAddr::V4(address)) if server == Server::Dns64 && v6 == 0 => {
                record(RData::AAAA(AAAA(synthesized(address))));
            }
            _ => {}
        }
    }
    message.to_vec().ok()
}

#[cfg(test)]
mod tests {
    use hickory_proto::op::{MessageType, Query};
    use hickory_proto::rr::Name;

    use super::*;

    fn ask(name: &str, kind: RecordType, server: Server) -> (ResponseCode, Vec<String>) {
        let names = Names::from([
            ("four.example".to_owned(), vec!["45.10.0.2".parse().unwrap()]),
            ("both.example".to_owned(), vec!["45.10.0.2".parse().unwrap(), "2a01:4f8:1::2".parse().unwrap()]),
        ]);
        let mut query = Message::new(7, MessageType::Query, OpCode::Query);
        query.add_query(Query::query(Name::from_ascii(name).unwrap(), kind));
        let answer = Message::from_vec(&answer(&query.to_vec().unwrap(), &names, server).unwrap()).unwrap();
        assert_eq!(answer.metadata.id, 7);
        (answer.metadata.response_code, answer.answers.iter().map(|record| record.data.to_string()).collect())
    }

    #[test]
    fn known_names_are_told_and_others_do_not_exist() {
        let plain = |name, kind| ask(name, kind, Server::Plain);
        assert_eq!(plain("Both.example.", RecordType::AAAA).1, ["2a01:4f8:1::2"]);
        assert_eq!(plain("four.example.", RecordType::AAAA), (ResponseCode::NoError, vec![]));
        assert_eq!(plain("none.example.", RecordType::A).0, ResponseCode::NXDomain);
    }

    #[test]
    fn dns64_makes_up_ipv6_only_where_there_is_none() {
        let dns64 = |name| ask(name, RecordType::AAAA, Server::Dns64).1;
        assert_eq!(dns64("four.example."), ["64:ff9b::2d0a:2"]);
        assert_eq!(dns64("both.example."), ["2a01:4f8:1::2"]);
        assert_eq!(dns64("ipv4only.arpa."), ["64:ff9b::c000:aa"]);
    }

    #[test]
    fn a_captive_network_has_one_answer() {
        let portal = Server::Captive(Ipv4Addr::new(93, 50, 0, 80));
        assert_eq!(ask("any.example.", RecordType::A, portal).1, ["93.50.0.80"]);
        assert!(answer(b"no query", &Names::new(), Server::Plain).is_none());
    }
}
