//! Drives other people's programs through the proxy and prints what came of it; started by `cargo xtask clients`.

#[cfg(target_os = "linux")]
use tandem_testbed::clients::command::main;

#[cfg(not(target_os = "linux"))]
fn main() -> std::process::ExitCode {
    eprintln!("the trials of other people's programs need Linux");
    std::process::ExitCode::FAILURE
}
