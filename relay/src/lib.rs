//! The relay: the server-side proxy of Tandem, between bicasting clients and the servers they want to reach.

pub mod egress;
pub mod rules;
