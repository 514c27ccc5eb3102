//! Runs the paper's experiments and lays the results beside what it states; started by `cargo xtask paper`.

#[cfg(target_os = "linux")]
use tandem_testbed::paper::command::main;

#[cfg(not(target_os = "linux"))]
fn main() -> std::process::ExitCode {
    eprintln!("the bed of namespaces needs Linux");
    std::process::ExitCode::FAILURE
}
