//! Runs cases on the bed and prints what was measured beside what is allowed; started by `cargo xtask cases`.

#[cfg(target_os = "linux")]
use tandem_testbed::cases::command::main;

#[cfg(not(target_os = "linux"))]
fn main() -> std::process::ExitCode {
    eprintln!("the bed of namespaces needs Linux");
    std::process::ExitCode::FAILURE
}
